"""LanceTable: its methods by topic, and its builders.

May import: spark.sql, spark.jobs and all below.
"""
