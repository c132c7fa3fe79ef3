"""Planning and running scans.

May import: table.index and all below.
"""
