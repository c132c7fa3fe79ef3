"""Compaction: plan, tasks and commit; clustering; stable row ids for old tables.

May import: table.write and all below.
"""
