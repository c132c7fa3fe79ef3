"""Data files of version 0.1.

May import: the parts that all versions share, codec and below.
"""
