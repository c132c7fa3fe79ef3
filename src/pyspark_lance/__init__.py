"""Lance tables in PySpark.

Spark imports every installed package whose name starts with ``pyspark_`` to look for data
sources, so this module must stay cheap and must never fail: it imports only pyspark's data source
base class, and everything else when it is used.
"""
