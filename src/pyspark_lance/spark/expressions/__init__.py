"""SQL expressions and Columns of users, resolved against a table.

May import: spark.types and all below.
"""
