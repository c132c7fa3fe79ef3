"""What pylance writes, changes and compacts, we read: values, ids, addresses and versions."""

from __future__ import annotations

import lance
import pytest
from table_access import assert_same_rows, random_history, read_ours, read_theirs

from pyspark_lance.table.time_travel import VersionSpec

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("seed", range(12))
def test_every_version_of_a_random_history_reads_as_in_pylance(tmp_path, seed, version):
    path = str(tmp_path / "t")
    try:
        random_history(path, seed, version)
    except (OSError, ValueError, RuntimeError, BaseException) as error:
        if "NotImplemented" in type(error).__name__ or isinstance(error, KeyboardInterrupt):
            raise
        pytest.skip(f"pylance itself cannot make this history: {str(error)[:200]}")
    for number in [v["version"] for v in lance.dataset(path).versions()]:
        assert_same_rows(read_ours(path, VersionSpec(version=number)), read_theirs(path, number))
