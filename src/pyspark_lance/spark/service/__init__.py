"""The process that plans and commits for the JVM plugin, one for each Spark application.

``methods.py`` lists the methods, ``server.py`` runs them and encodes requests and responses. Only
the plugin starts this process: ``python -m pyspark_lance.spark.service``.

May import: spark.sql, spark.data_source and all below.
"""
