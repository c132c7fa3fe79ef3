"""The Spark connector: the data source, LanceTable, and the service of the JVM plugin.

May import: everything.
"""
