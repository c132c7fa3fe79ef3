"""The command line: inspect and maintain tables without Spark.

May import: table and all below.
"""
