"""What a vector index is asked to be like, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.field import Field
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.nearest.ivf_file import INDEX_NAMES, IvfKind
from pyspark_lance.table.nearest.ivf_model import IvfShape
from pyspark_lance.table.nearest.metric import Metric
from pyspark_lance.table.nearest.vectors import width_of
from pyspark_lance.table.version.snapshot import Snapshot

_MAX_PARTITIONS: Final = 4096
_ROWS_OF_PARTITION: Final = {IvfKind.FLAT: 4096, IvfKind.PQ: 8192, IvfKind.SQ: 8192}
_MAX_RATE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class VectorIndexRequest:
    """A vector index to make."""

    column: str | None = None  # The column of vectors; None for the only one.
    kind: IvfKind = IvfKind.PQ  # What to store of a row.
    metric: Metric = Metric.L2  # What the index is for.
    # How many groups of rows; None for a number that follows theirs.
    num_partitions: int | None = None
    # IVF_PQ only: how many parts of a vector have codes; None for a 16th of its width, or an 8th.
    num_sub_vectors: int | None = None
    sample_rate: int = 256  # How many vectors to learn from for each centroid and each codeword.
    seed: int | None = None  # For all choices; None for others each time.
    name: str | None = None  # Of the index; None for that of the column and ``_idx``.
    replace: bool = False  # Whether to take the place of a vector index of that name.

    def __post_init__(self) -> None:
        """Refuses numbers that are none."""
        check_enum(self.kind, IvfKind)
        check_enum(self.metric, Metric)
        most = {"num_partitions": 1 << 16, "num_sub_vectors": 1 << 16, "sample_rate": _MAX_RATE}
        for name, limit in most.items():
            value = getattr(self, name)
            if value is not None and not (_is_whole(value) and 0 < value <= limit):
                raise InvalidInputError(f"{name} must be a number from 1 to {limit}, not {value!r}")
        if self.seed is not None and not (_is_whole(self.seed) and self.seed >= 0):
            raise InvalidInputError(f"seed must be a number, at least 0, not {self.seed!r}")
        if self.num_sub_vectors is not None and self.kind is not IvfKind.PQ:
            raise InvalidInputError("the number of sub-vectors is for ivf_pq only")


@also_snake_case
@dataclass(frozen=True, slots=True)
class VectorIndexResult:
    """What became of a vector index.

    Attributes:
        version: The version that has its new segment; None when there was nothing to do.
        name: Of the index.
        numPartitions: Its groups of rows.
        numRows: Rows of the new segment.
        numFragments: Fragments that it covers.
    """

    version: int | None = None
    name: str = ""
    numPartitions: int = 0  # noqa: N815
    numRows: int = 0  # noqa: N815
    numFragments: int = 0  # noqa: N815


def parse_kind(name: str) -> IvfKind:
    """The kind of this name, in whatever case."""
    kinds = {shown: kind for kind, shown in INDEX_NAMES.items()}
    kind = kinds.get(str(name).strip().upper())
    if kind is None:
        raise InvalidInputError(
            f"{name!r} is not a kind of vector index that can be built",
            hint=f"the kinds are {', '.join(map(str.lower, kinds))}",
        )
    return kind


def shape_of(snapshot: Snapshot, column: Field, request: VectorIndexRequest) -> IvfShape:
    """What the index of a column is to be like, where the request leaves it open."""
    width = width_of(column)
    partitions = request.num_partitions
    if partitions is None:
        rows = snapshot.manifest.fragments.num_rows
        partitions = rows // _ROWS_OF_PARTITION[request.kind]
        partitions = max(1, min(_MAX_PARTITIONS, partitions))
    if request.kind is not IvfKind.PQ:
        return IvfShape(request.kind, request.metric, partitions)
    parts = request.num_sub_vectors
    if parts is None:
        part = next(size for size in (16, 8, *range(7, 0, -1)) if width % size == 0)
        parts = width // part
    if width % parts:
        raise InvalidInputError(
            f"{parts} sub-vectors do not divide vectors of {width} numbers",
            hint="give numSubVectors that does, such as an 8th or a 16th of it",
        )
    return IvfShape(request.kind, request.metric, partitions, parts)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
