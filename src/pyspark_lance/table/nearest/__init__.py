"""Nearest-neighbor search: kernels, vector indices, plans and tasks.

May import: table.scan and all below.
"""
