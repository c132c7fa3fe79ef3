"""The Spark connector: the data source, LanceTable, and what the JVM companion asks.

May import: everything.
"""
