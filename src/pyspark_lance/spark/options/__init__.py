"""The options of the data source, and their parsing.

May import: table and all below.
"""
