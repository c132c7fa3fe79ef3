"""Commits: what a new version is, conflicts, the loop that makes it.

May import: metafile, codec, format, store.
"""
