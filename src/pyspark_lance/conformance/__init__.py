"""A set of tables with what readers must answer about their rows, and a runner for any reader.

May import: everything below ``spark`` and the command line.
"""
