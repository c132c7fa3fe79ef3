"""Readers and writers of the data source, and what they hand to tasks.

May import: spark.types and all below.
"""
