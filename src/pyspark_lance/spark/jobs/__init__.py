"""Spark jobs that change rows or columns.

May import: spark.source and all below.
"""
