"""Versions of a table: snapshots, time travel, where files are.

May import: metafile, datafile and all below.
"""
