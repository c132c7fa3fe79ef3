"""Refs: tags, branches and consumers.

May import: table.version, commit and all below.
"""
