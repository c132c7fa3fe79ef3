"""Keeping tables in order: files that no version refers to, folders of tables.

May import: metafile and all below.
"""
