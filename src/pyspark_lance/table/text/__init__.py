"""Full-text search: tokens, inverted indices, queries, scores and the rows that they find.

May import: table.nearest and all below.
"""
