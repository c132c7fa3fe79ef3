"""Scalar indices and zone maps: file formats and lookups.

May import: table.rows and all below.
"""
