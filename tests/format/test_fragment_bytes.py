"""Manifests that are read beside a neighbour."""

from __future__ import annotations

import dataclasses
import random

import pytest
from damage import bit_flips, splices, truncations

from pyspark_lance.errors import LanceError
from pyspark_lance.format.data_file import DataFile
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType
from pyspark_lance.format.feature_flags import STABLE_ROW_IDS
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.wire import length_delimited
from pyspark_lance.proto import table_pb2


def fragment(number: int, *, path: str = "a.lance", deleted: int = 0) -> Fragment:
    file = DataFile(path, (0,), (0,), 2, 1, 1000)
    deletion = DeletionFile(DeletionFileType.ARROW_ARRAY, 1, 7, deleted) if deleted else None
    ids = RowIdSequence.consecutive(100 * number, 100).to_bytes()
    return Fragment(number, (file,), 100, deletion, ids)


def manifest(*fragments: Fragment, version: int = 1) -> Manifest:
    return Manifest(
        version=version,
        schema=LanceSchema(fields=(), metadata={}),
        fragments=fragments,
        reader_flags=STABLE_ROW_IDS,
        writer_flags=STABLE_ROW_IDS,
        max_fragment_id=max((one.id for one in fragments), default=0),
        config={"a": "b"},
    )


MANY = tuple(fragment(number) for number in range(300))


def others(one: tuple[Fragment, ...], rng: random.Random) -> tuple[Fragment, ...]:
    """``one`` with some fragments removed, replaced and added."""
    kept = [part for part in one if rng.random() > 0.01]
    kept = [
        dataclasses.replace(part, deletion_file=fragment(0, deleted=3).deletion_file)
        if rng.random() < 0.02
        else part
        for part in kept
    ]
    top = max((part.id for part in one), default=0)
    return (*kept, *(fragment(top + n, path="b.lance") for n in range(1, 1 + rng.randrange(3))))


@pytest.mark.parametrize("seed", range(20))
def test_manifests_read_beside_each_other_are_those_that_are_read_alone(seed):
    rng = random.Random(seed)
    fragments, known = MANY, None
    for version in range(1, 12):
        data = manifest(*fragments, version=version).to_bytes()
        found, known = Manifest.beside(data, known)
        assert found == Manifest.from_bytes(data)
        assert known is not None
        # Time travel in between: a restored version is anything.
        fragments = MANY[rng.randrange(300) :] if rng.random() < 0.2 else others(fragments, rng)


def test_fragments_that_neighbours_have_in_common_are_parsed_once():
    first, known = Manifest.beside(manifest(*MANY).to_bytes(), None)
    changed = [*MANY[:10], *MANY[11:200], fragment(200, deleted=1), *MANY[201:], fragment(300)]
    second, _ = Manifest.beside(manifest(*changed, version=2).to_bytes(), known)
    fresh = {one.id for one in second.fragments} - {
        one.id for one in second.fragments if any(one is other for other in first.fragments)
    }
    assert fresh == {200, 300}


def test_fragments_that_stand_apart_are_read_as_well():
    data = manifest(*MANY[:3]).to_bytes()
    late = length_delimited(
        table_pb2.Manifest.FRAGMENTS_FIELD_NUMBER, MANY[3].to_proto().SerializeToString()
    )
    found, known = Manifest.beside(data + late, None)
    assert [one.id for one in found.fragments] == [0, 1, 2, 3]
    assert known is None


def test_fragments_out_of_order_are_shared_in_their_places():
    mixed = (MANY[5], MANY[2], MANY[9])
    _, known = Manifest.beside(manifest(*mixed).to_bytes(), None)
    found, _ = Manifest.beside(manifest(MANY[2], MANY[5], MANY[9], MANY[11]).to_bytes(), known)
    assert [one.id for one in found.fragments] == [2, 5, 9, 11]
    assert found.fragments == (MANY[2], MANY[5], MANY[9], MANY[11])


def test_what_nobody_understands_is_found_beside_a_neighbour_too():
    strange = MANY[1].to_proto().SerializeToString() + length_delimited(900, b"x")
    plain = manifest(MANY[0]).to_bytes()
    data = plain.replace(
        piece := length_delimited(2, MANY[0].to_proto().SerializeToString()),
        piece + length_delimited(2, strange),
    )
    assert data != plain
    known = None
    for _ in range(3):
        found, known = Manifest.beside(data, known)
        assert found.has_unknown_fields


def test_damaged_manifests_end_as_they_do_alone():
    _, known = Manifest.beside(manifest(*MANY[:20]).to_bytes(), None)
    data = manifest(*MANY[:7], fragment(7, deleted=2), *MANY[8:21], version=2).to_bytes()

    def outcome(read):
        try:
            return read()
        except LanceError as error:
            return type(error), error.what

    for damaged in (*truncations(data), *bit_flips(data, 800), *splices(data, 800)):
        beside = outcome(lambda: Manifest.beside(damaged, known)[0])  # noqa: B023
        assert beside == outcome(lambda: Manifest.from_bytes(damaged))  # noqa: B023
