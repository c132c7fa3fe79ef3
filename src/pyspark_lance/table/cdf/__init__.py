"""The change feed.

May import: table.scan and all below.
"""
