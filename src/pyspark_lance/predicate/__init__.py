"""Conditions on rows: parse, types, casts, evaluate, prune; pure, no I/O.

May import: format, errors.
"""
