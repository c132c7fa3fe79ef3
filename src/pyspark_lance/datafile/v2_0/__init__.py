"""Columns of data files 2.0.

May import: the parts that all versions share, codec and below.
"""
