"""EncodedPage: a page of 2.1 or 2.2, ready to be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_lance.proto import encodings_v2_1_pb2 as pb


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPage:
    """Buffers and their description.

    ``buffers``: page buffers: bytes or contiguous arrays.
    """

    buffers: Sequence[object]
    layout: pb.PageLayout
    num_rows: int
