"""The conformance set: tables with the expected results of readers, and a runner for any reader.

May import: everything below ``spark`` and the command line.
"""
