"""Sorting rows by columns or along a space-filling curve.

May import: table.scan and all below.
"""
