"""External manifest stores: which versions a table has, kept where a row can be created only once.

May import: errors, store.
"""
