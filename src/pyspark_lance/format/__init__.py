"""Immutable values that describe a table, and their protobuf messages; no I/O.

May import: errors.
"""
