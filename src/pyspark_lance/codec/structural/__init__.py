"""Layouts of the pages of files 2.1 and 2.2.

May import: codec.compressive and below.
"""
