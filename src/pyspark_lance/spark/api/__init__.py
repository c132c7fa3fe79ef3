"""LanceTable, its builders, and the work of its longer methods.

May import: spark.sql, spark.jobs and all below.
"""
