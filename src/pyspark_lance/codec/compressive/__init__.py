"""Encodings of values, one file for each.

May import: codec and below.
"""
