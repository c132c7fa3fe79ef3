"""The border between driver and executors, for tests that run both in one process.

Spark pickles what crosses it.  ``put_up`` makes everything that this package would do on an
executor get pickled copies, and the caller get pickled copies of what it answers; each copy must be
what it is a copy of, types and all.  So a test that plans, runs and commits here sees what a test
with a JVM would see.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pickle
import pkgutil
import sys
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

PACKAGE = "pyspark_lance"

TASKS = (
    "table.scan.scan_task.ScanTask",
    "table.cdf.change_feed_task.ChangeFeedTask",
    "table.nearest.ivf_build.TrainTask",
    "table.nearest.ivf_build.EncodeTask",
    "table.nearest.ivf_build.TakeTask",
    "table.nearest.ivf_build.JoinTask",
    "table.nearest.search_plan.VectorSearch",
    "table.text.segment_search.TextSegmentTask",
    "table.text.segment_search.TextScanTask",
    "table.text.near_duplicates.NearDuplicatesSearch",
    "table.index_build.segment_task.SegmentTask",
    "table.index_build.zone_maps.ZoneMapTask",
    "table.compaction.compaction_plan.CompactionTask",
    "table.compaction.clustering.SampleTask",
    "table.compaction.clustering.SortTask",
    "table.compaction.clustering.MergeTask",
)
ON_EXECUTORS = {
    **{f"{task}.run": ["self"] for task in TASKS},
    "table.write.write_table.write_rows": ["plan"],
    "table.rows.write_fragments.write_fragments": ["request"],
    "table.dml.moved_rows.write_changes": ["plan", "clauses"],
    "table.dml.change_stages.sort_changes": ["plan", "clauses", "parts"],
    "table.dml.deletions.write_deletions": ["plan"],
    "table.dml.plain_merge.plain_changes": ["merge"],
    "table.dml.plain_merge.match_stage": ["plan", "merge", "parts", "packed_target"],
    "table.rows.column_files.write_column_files": ["request"],
    "table.dml.rewrite_columns.rewrite_columns": ["request"],
    "table.nearest.search_plan.merge_matches": ["merge", "parts", "queries"],
    "table.nearest.search_plan.read_found": ["fetch"],
    "table.text.search_plan.merge_matches": ["merge", "parts"],
}
"""What runs on executors, and which of its arguments come from the driver; the others are rows."""


def sent(thing: object) -> object:
    """What arrives of ``thing``."""
    arrived = pickle.loads(cloudpickle.dumps(thing))
    assert_same(thing, arrived)
    return arrived


# A copy of one of these is the same where it is of the same type and equal to it.
_PLAIN = frozenset({int, str, bytes, bool})


def assert_same(one: object, other: object, path: tuple[object, ...] = ()) -> None:
    """Whether a copy is what it is a copy of, type by type: 1 is neither True nor an enum of 1.

    ``path`` leads to it: names of fields, keys and places.
    """
    kind = type(one)
    assert kind is type(other), f"{'.'.join(map(str, path))} was {one!r} and became {other!r}"
    if one is other or (kind in _PLAIN and one == other):
        return
    names = _field_names(kind)
    if names is not None:
        for name in names:
            assert_same(getattr(one, name), getattr(other, name), (*path, name))
    elif isinstance(one, Mapping):
        assert one.keys() == other.keys(), path
        for key, value in one.items():
            assert_same(value, other[key], (*path, key))
    elif isinstance(one, tuple | list):
        assert len(one) == len(other), path
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, (*path, index))
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, path
        assert np.array_equal(one, other), path
    elif isinstance(one, pa.Scalar):
        # Bit by bit: zeros of both signs are equal, and not all values can be printed.
        assert_same(*(pa.repeat(value, 1) for value in (one, other)), path)
        assert _bits(one) == _bits(other), path
    elif isinstance(one, pa.Array):
        # NaN is not equal to itself.
        assert one.equals(other) or one.to_string(window=99) == other.to_string(window=99), path
    else:
        assert one == other or repr(one) == repr(other), path


def _bits(scalar: pa.Scalar) -> list[bytes | None]:
    buffers = pa.repeat(scalar, 1).buffers()
    return [None if one is None else one.to_pybytes() for one in buffers]


@functools.cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    """Those of a dataclass."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind))


def put_up() -> None:
    """Put the border up, for the rest of this process."""
    for name, given in ON_EXECUTORS.items():
        owner_name, _, function = name.rpartition(".")
        owner = pkgutil.resolve_name(f"{PACKAGE}.{owner_name}")
        original = getattr(owner, function)
        crossing = _across(original, given)
        if inspect.isclass(owner):
            setattr(owner, function, crossing)
            continue
        # Modules that imported it by name have it under that name, too.
        for known in [m for n, m in sys.modules.items() if n.partition(".")[0] == PACKAGE]:
            for attribute, value in list(vars(known).items()):
                if value is original:
                    setattr(known, attribute, crossing)


def _across(original, given):
    signature = inspect.signature(original)

    @functools.wraps(original)
    def crossing(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        for name in given:
            bound.arguments[name] = sent(bound.arguments[name])
        answer = original(*bound.args, **bound.kwargs)
        return map(_answered, answer) if isinstance(answer, Iterator) else _answered(answer)

    return crossing


def _answered(answer):
    """Rows that one stage yields to the next do not pass through the driver."""
    parts = answer if isinstance(answer, tuple) else [answer]
    return answer if any(isinstance(one, pa.RecordBatch) for one in parts) else sent(answer)
