"""Planning and running scans.

May import: table.rows and all below.
"""
