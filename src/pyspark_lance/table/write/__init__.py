"""Writing rows: append, overwrite, replaceWhere.

May import: table.columns, table.dml and all below.
"""
