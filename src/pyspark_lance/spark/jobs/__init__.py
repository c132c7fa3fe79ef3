"""Jobs that change rows or columns through Spark.

May import: spark.source and all below.
"""
