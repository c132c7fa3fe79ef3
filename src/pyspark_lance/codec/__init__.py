"""How values become bytes, and back: numpy and Arrow in and out; no I/O.

May import: proto, errors.
"""
