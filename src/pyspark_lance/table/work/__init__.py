"""One piece of work on a table: planned on its newest version, committed once.

May import: table.cleanup, table.refs and all below.
"""
