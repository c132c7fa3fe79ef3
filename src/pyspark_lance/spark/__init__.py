"""The Spark connector: the data source, LanceTable, and the service that the JVM plugin calls.

May import: everything.
"""
