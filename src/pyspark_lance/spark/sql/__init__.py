"""SQL support: the plugin's calls, catalogs, procedures, metadata tables.

May import: spark.jobs, spark.source and all below.
"""
