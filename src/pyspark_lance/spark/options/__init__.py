"""Options: the table of them, and parsing.

May import: table and all below.
"""
