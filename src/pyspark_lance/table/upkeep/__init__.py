"""Keeping tables in order: compaction, folders of tables.

May import: all other rooms of table/, and all below.
"""
