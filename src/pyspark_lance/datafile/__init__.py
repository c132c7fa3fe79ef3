"""Data files: what is inside of one, and reading and writing it.

May import: metafile, codec, format, store.
"""
