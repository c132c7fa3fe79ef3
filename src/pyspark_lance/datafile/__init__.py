"""Data files: their layout, readers and writers.

May import: metafile, codec, format, store.
"""
