"""Removing what is not needed any more: old versions, files that no version refers to.

May import: table.refs, table.version, commit and all below.
"""
