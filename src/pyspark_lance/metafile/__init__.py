"""Manifests, transactions, deletion files, references: reading and writing them.

May import: format, store.
"""
