"""Names of tables: Lance namespaces in a folder or a REST service.

May import: table and all below; never Spark.
"""
