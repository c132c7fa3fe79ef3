"""Verification of tables.

May import: table.index and all below.
"""
