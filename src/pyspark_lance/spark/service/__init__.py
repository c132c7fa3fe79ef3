"""The process that plans and commits for the JVM plugin, one for each Spark application.

``frames.py`` is how requests and responses travel, ``methods.py`` which there are, ``server.py``
runs them. Only the plugin starts it: ``python -m pyspark_lance.spark.service``.

May import: spark.sql, spark.data_source and all below.
"""
