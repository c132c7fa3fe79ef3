"""Service for the JVM plugin on the standard streams, until the plugin closes them."""

from __future__ import annotations

import argparse
import logging
import os
import signal

import pyspark

import pyspark_lance
from pyspark_lance.spark.service.server import (
    PROTOCOL,
    Server,
    SparkLogHandler,
    encode_frame,
    write_frame,
)


def main() -> None:
    """Serve requests, then exit without waiting for threads whose statements have ended."""
    parser = argparse.ArgumentParser(prog="python -m pyspark_lance.spark.service")
    parser.add_argument(
        "--protocol", type=int, required=True, help="version that the plugin speaks"
    )
    parser.add_argument("--memory-mb", type=int, help="limit of this process's memory")
    arguments = parser.parse_args()
    # Ctrl-C in a shell reaches all of its processes; only the driver decides which ones exit.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if arguments.memory_mb:
        _limit_memory(arguments.memory_mb << 20)
    requests = os.fdopen(os.dup(0), "rb")
    responses = os.fdopen(os.dup(1), "wb")
    # Output of user code or libraries must not end up between two frames.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    hello = {
        "protocol": PROTOCOL,
        "version": pyspark_lance.__version__,
        "pyspark": pyspark.__version__,
    }
    write_frame(responses, encode_frame(hello))
    # After the first frame: the plugin sends its request while this process imports.
    from pyspark_lance.spark.service.methods import methods  # noqa: PLC0415

    server = Server(requests, responses, methods)
    logger = logging.getLogger("pyspark_lance")
    logger.addHandler(SparkLogHandler(server))
    logger.setLevel(logging.INFO)
    server.run()
    os._exit(0)


def _limit_memory(limit: int) -> None:
    try:
        import resource  # noqa: PLC0415
    except ModuleNotFoundError:
        return  # Windows limits no process's memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
