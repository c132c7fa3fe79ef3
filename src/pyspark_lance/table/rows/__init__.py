"""Rows of fragments: reading and writing them, their lineage, conforming them to a schema.

May import: table.version and all below.
"""
