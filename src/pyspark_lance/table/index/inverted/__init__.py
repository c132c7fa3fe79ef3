"""Inverted indices of texts: their tokens, and the files of their segments.

May import: table.index.index_file and what it may import.
"""
