"""Spark types, and the schema of a write.

May import: spark.options and all below.
"""
