"""DML: DELETE, UPDATE, MERGE and rewriting of columns.

May import: table.scan and all below.
"""
