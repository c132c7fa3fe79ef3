"""Writing rows: append, overwrite, replaceWhere.

May import: table.columns, table.change and all below.
"""
