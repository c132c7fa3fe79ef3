"""Columns of data files 2.1 and 2.2.

May import: the parts that all versions share, codec and below.
"""
