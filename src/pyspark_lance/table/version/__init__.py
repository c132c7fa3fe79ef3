"""Versions of a table: snapshots, time travel, file locations.

May import: metafile, datafile and all below.
"""
