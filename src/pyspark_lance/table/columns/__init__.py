"""Changing columns: add, drop, rename, convert.

May import: table.change and all below.
"""
