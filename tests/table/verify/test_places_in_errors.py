"""An error about a data file names the table that it is of, wherever the file is damaged."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from table_access import read_ours

from pyspark_lance.errors import CorruptFileError, LanceError

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])
def test_damaged_data_file_error_names_table(tmp_path, version):
    path = str(tmp_path / "t")
    rows = pa.table({"n": range(1000), "s": [f"word {i % 7}" for i in range(1000)]})
    lance.write_dataset(rows, path, data_storage_version=version)
    (file,) = Path(path, "data").iterdir()
    sound = file.read_bytes()
    seen = set()
    cuts = [sound[:10], sound[:-4] + b"PAR1", sound[:-60] + b"\xff" * 52 + sound[-8:]]
    holes = range(0, len(sound) - 64, max(1, len(sound) // 40))
    for damaged in (*cuts, *(sound[:at] + b"\xff" * 64 + sound[at + 64 :] for at in holes)):
        file.write_bytes(damaged)
        try:
            read_ours(path, system_columns=())
        except CorruptFileError as error:
            assert f"{path}/data/{file.name}" in str(error)
            seen.add(error.what)
        except LanceError as error:
            assert path in str(error), error
    assert len(seen) > 2
