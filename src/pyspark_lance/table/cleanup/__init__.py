"""Cleanup of old versions and unreferenced files.

May import: table.refs, table.version, commit and all below.
"""
