"""Names of tables: Lance's namespaces, kept in a folder or by a REST service.

May import: table and all below; never Spark.
"""
