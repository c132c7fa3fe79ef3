"""Sorting rows by columns, or along a curve through their values.

May import: table.scan and all below.
"""
