"""SQL expressions and columns as users give them, resolved against a table.

May import: spark.types and all below.
"""
