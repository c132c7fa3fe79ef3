"""Index builds and maintenance: segments, zone maps, vectors, their commits.

May import: table.nearest, table.scan and all below.
"""
