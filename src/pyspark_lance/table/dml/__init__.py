"""Changing rows: delete, update, merge, rewriting columns.

May import: table.scan and all below.
"""
