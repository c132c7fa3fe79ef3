"""The script that ``first_query.py`` gives to ``spark-submit``: 100 rows, written and read.

Print the processor time of the JVM, which runs this process, and of all that it started.
It imports no more than such a script does.
"""

import os
import sys

from harness import processor_seconds
from pyspark.sql import SparkSession

if __name__ == "__main__":
    form, path = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    if form == "nothing":
        from sources import Nothing

        spark.dataSource.register(Nothing)
    spark.range(100).write.format(form).mode("append").save(path)
    assert len(spark.read.format(form).load(path).collect()) == 100
    print(processor_seconds(os.getppid()))
