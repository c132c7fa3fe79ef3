"""Schema changes: add, drop, rename and convert columns.

May import: table.dml and all below.
"""
