"""Readers and writers of the data source, and the messages between driver and tasks.

May import: spark.types and all below.
"""
