"""LanceTable: its methods by concept, and the builder of a merge.

May import: spark.sql, spark.jobs and all below.
"""
