"""Compaction: which fragments are joined, the tasks, the commit; row ids for old tables.

May import: table.write and all below.
"""
