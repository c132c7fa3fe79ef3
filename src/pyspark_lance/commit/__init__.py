"""Commits: content of a new version, conflicts, the loop that creates it.

May import: metafile, codec, format, store.
"""
