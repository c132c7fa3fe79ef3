"""Keeping tables in order: files that no version refers to, folders of tables.

May import: table.columns, table.change and all below.
"""
