"""Scalar indices and zone maps: which rows of which fragments a condition leaves, by their files.

May import: table.rows and all below.
"""
