"""Operations on a table: read versions, scan, write, change, follow.

May import: commit, datafile and all below; never Spark.
"""
