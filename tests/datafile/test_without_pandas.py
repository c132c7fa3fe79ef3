"""Files are written and read without pandas, whose import costs a worker more than all others."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pyarrow as pa
from column_cases import column_cases

# Arrow imports pandas where it is given or asked for an array of numpy, to see whose it is.
SCRIPT = """
import pickle, sys
from pathlib import Path

import numpy as np

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.local_store import LocalStore

folder, blamed = Path(sys.argv[1]), []
for name, batch in pickle.loads((folder / "cases").read_bytes()).items():
    for version in ("2.0", "2.1", "2.2"):
        file = f"{name}-{version}"
        try:
            writer = DataFileWriter(
                LocalStore(str(folder)), file, LanceSchema.from_arrow(batch.schema), version=version
            )
            writer.write(batch)
            writer.finish()
        except UnsupportedFeatureError:
            continue
        reader = DataFileReader.open(LocalStore(str(folder)), file)
        fields, columns = reader.schema.fields, reader.embedded_columns()
        ranges = [(0, batch.num_rows)]
        (read,) = reader.read_batches(fields, columns, ranges=ranges, batch_rows=batch.num_rows)
        assert read.num_rows == batch.num_rows
        reader.take(fields, columns, np.array([0, 5, batch.num_rows - 1]))
        if "pandas" in sys.modules:
            sys.exit(f"{file} imports pandas")
print("none")
"""


def test_reading_and_writing_never_import_pandas(tmp_path):
    cases = {name: pa.record_batch([one], ["c"]) for name, one in column_cases(4000).items()}
    (tmp_path / "cases").write_bytes(pickle.dumps(cases))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("none\n", "", 0)
