"""How scripts of tests start a local Connect server: on an unused port."""

from __future__ import annotations

# Text, because every script is a process of its own. Spark always takes port 15002.
START_CONNECT = """
import socket
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.core import DefaultChannelBuilder
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    free_port = probe.getsockname()[1]
DefaultChannelBuilder.default_port = staticmethod(lambda: free_port)
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.connect.grpc.binding.port", str(free_port))
    .getOrCreate()
)
"""


def start_connect(settings: dict[str, str]) -> str:
    """START_CONNECT, with settings of the server."""
    more = "".join(f".config({name!r}, {value!r})\n    " for name, value in settings.items())
    return START_CONNECT.replace(".getOrCreate()", more + ".getOrCreate()")
