"""Nearest rows of vectors: kernels, tasks of a search and the rows that they find.

May import: table.scan and all below.
"""
