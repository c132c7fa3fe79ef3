"""History: versions and their operations, ancestry, every state of a row.

May import: table.compaction and all below.
"""
