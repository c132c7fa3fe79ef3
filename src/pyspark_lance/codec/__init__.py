"""Encodings between values and bytes: numpy and Arrow in and out; no I/O.

May import: proto, errors.
"""
