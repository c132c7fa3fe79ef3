"""What a table is, as immutable values, and their protobuf messages; no I/O.

May import: errors.
"""
