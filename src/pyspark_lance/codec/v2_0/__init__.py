"""Encodings of the pages of files 2.0.

May import: codec.compressive and below.
"""
