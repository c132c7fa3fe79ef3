"""Verification: what is wrong with a table, and where.

May import: table.index and all below.
"""
