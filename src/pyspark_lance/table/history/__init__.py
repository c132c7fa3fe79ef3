"""History: versions and their operations, and ancestry.

May import: table.compaction and all below.
"""
