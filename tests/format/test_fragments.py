"""The fragments of manifests: read beside a neighbour, as columns, changed by their bytes."""

from __future__ import annotations

import dataclasses
import pickle
import random

import numpy as np
import pytest
from damage import bit_flips, splices, truncations

from pyspark_lance.commit.fragment_changes import FragmentsById
from pyspark_lance.errors import LanceError
from pyspark_lance.format import manifest as manifests
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType
from pyspark_lance.format.feature_flags import STABLE_ROW_IDS
from pyspark_lance.format.fragment import DataFile, Fragment
from pyspark_lance.format.fragments import MAX_PIECES, Fragments
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.row_id_sequence import RowIdSequence, single_ranges
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


@pytest.fixture
def shares_few_bytes(monkeypatch):
    """Versions share bytes as those of large tables do."""
    monkeypatch.setattr(manifests, "_MIN_SHARED", 1)


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
def test_manifest_read_with_known_fragments_equals_plain_read(seed):
    rng = random.Random(seed)
    fragments, known = MANY, None
    for version in range(1, 12):
        data = manifest(*fragments, version=version).to_bytes()
        found = Manifest.from_bytes(data, known=known)
        assert found == Manifest.from_bytes(data)
        known = found.fragments
        # Time travel in between: a restored version is anything.
        fragments = MANY[rng.randrange(300) :] if rng.random() < 0.2 else others(fragments, rng)


def test_versions_share_bytes_of_common_fragments(shares_few_bytes):
    fragments, versions = MANY, [Manifest.from_bytes(manifest(*MANY).to_bytes()).fragments]
    for number in range(3 * MAX_PIECES):
        fragments = (*fragments[:7], *fragments[8:], fragment(300 + number))
        data = manifest(*fragments).to_bytes()
        versions.append(Manifest.from_bytes(data, known=versions[-1]).fragments)
        assert versions[-1] == fragments
        assert versions[-1].encoded() == Fragments.of(fragments).encoded()
        assert len(versions[-1].stored.pieces) <= MAX_PIECES
    first, second = (one.stored.pieces for one in versions[:2])
    assert second[:-1] == first
    assert second[0] is first[0]
    assert len(second[-1]) < 100, "only the new fragment"
    assert len({id(one.stored.pieces[0]) for one in versions}) <= 4
    few = Manifest.from_bytes(manifest(*MANY[:150]).to_bytes(), known=versions[0]).fragments
    assert len(few.stored.pieces[0]) < len(first[0]) * 2 / 3, "bytes of others are not kept"


def test_appended_fragments_leave_bytes_of_base():
    base = Manifest.from_bytes(manifest(*MANY).to_bytes()).fragments
    changed = base
    for number in range(3 * MAX_PIECES):
        changed = changed.changed([fragment(300 + number)], [])
        assert len(changed.stored.pieces) <= MAX_PIECES
    assert changed == (*MANY, *(fragment(300 + number) for number in range(3 * MAX_PIECES)))
    again = base.changed([fragment(300)], [])
    assert again.stored.pieces[0] is base.stored.pieces[0]
    assert again.differing(base) == ([fragment(300)], [])
    assert base.differing(changed)[1] == list(changed[300:])
    assert base.changed([], []) == MANY
    assert base.changed([fragment(300)], [0])[0] == MANY[1]


def test_selections_differ_by_what_only_one_has():
    whole = Manifest.from_bytes(manifest(*MANY).to_bytes()).fragments
    assert whole[:10].differing(whole[:12]) == ([], list(MANY[10:12]))
    assert whole[:12].differing(whole[:10]) == (list(MANY[10:12]), [])
    some = whole.take(np.arange(0, 300, 3))
    assert whole.differing(some) == ([one for one in MANY if one.id % 3], [])
    fresh = Manifest.from_bytes(manifest(*MANY).to_bytes()).fragments
    assert some.differing(fresh[:10]) == (list(some[4:]), [one for one in MANY[:10] if one.id % 3])


def test_common_fragments_are_parsed_once():
    first = Manifest.from_bytes(manifest(*MANY).to_bytes())
    assert first.fragments == MANY
    changed = [*MANY[:10], *MANY[11:200], fragment(200, deleted=1), *MANY[201:], fragment(300)]
    data = manifest(*changed, version=2).to_bytes()
    second = Manifest.from_bytes(data, known=first.fragments)
    fresh = {one.id for one in second.fragments} - {
        one.id for one in second.fragments if any(one is other for other in first.fragments)
    }
    assert fresh == {200, 300}


def test_separated_fragments_are_read():
    data = manifest(*MANY[:3]).to_bytes()
    late = length_delimited(
        table_pb2.Manifest.FRAGMENTS_FIELD_NUMBER, MANY[3].to_proto().SerializeToString()
    )
    found = Manifest.from_bytes(data + late)
    assert [one.id for one in found.fragments] == [0, 1, 2, 3]
    again = Manifest.from_bytes(data + late, known=found.fragments)
    assert again.fragments == MANY[:4]


def test_unordered_fragments_are_shared():
    mixed = (MANY[5], MANY[2], MANY[9])
    known = Manifest.from_bytes(manifest(*mixed).to_bytes()).fragments
    data = manifest(MANY[2], MANY[5], MANY[9], MANY[11]).to_bytes()
    found = Manifest.from_bytes(data, known=known)
    assert [one.id for one in found.fragments] == [2, 5, 9, 11]
    assert found.fragments == (MANY[2], MANY[5], MANY[9], MANY[11])


def test_unknown_fragment_fields_are_detected_with_known_fragments():
    strange = MANY[1].to_proto().SerializeToString() + length_delimited(900, b"x")
    plain = manifest(MANY[0]).to_bytes()
    data = plain.replace(
        piece := length_delimited(2, MANY[0].to_proto().SerializeToString()),
        piece + length_delimited(2, strange),
    )
    assert data != plain
    for known in (None, manifest(MANY[0]).fragments):
        assert Manifest.from_bytes(data, known=known).has_unknown_fields


def test_damaged_manifest_fails_equally_with_known_fragments():
    known = Manifest.from_bytes(manifest(*MANY[:20]).to_bytes()).fragments
    data = manifest(*MANY[:7], fragment(7, deleted=2), *MANY[8:21], version=2).to_bytes()

    def outcome(read):
        try:
            return read()
        except LanceError as error:
            return type(error), error.what

    for damaged in (*truncations(data), *bit_flips(data, 800), *splices(data, 800)):
        beside = outcome(lambda: Manifest.from_bytes(damaged, known=known))  # noqa: B023
        assert beside == outcome(lambda: Manifest.from_bytes(damaged))  # noqa: B023


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("is_stored", [False, True])
def test_changed_fragments_equal_dict_model(seed, is_stored):
    rng = random.Random(seed)
    model = {one.id: one for one in MANY[: rng.choice([0, 1, 40])]}
    fragments = Fragments.of(model.values())
    for step in range(6):
        if is_stored:
            fragments = Manifest.from_bytes(manifest(*fragments).to_bytes()).fragments
        by_id = FragmentsById(fragments)
        for number in rng.sample(range(60), rng.randrange(8)):
            if number in by_id and rng.random() < 0.5:
                del by_id[number]
                del model[number]
            else:
                by_id[number] = model[number] = fragment(number, deleted=rng.randrange(step + 1))
        assert {number: by_id.get(number) for number in range(61)} == {
            number: model.get(number) for number in range(61)
        }
        fragments = by_id.fragments()
        expected = [model[number] for number in sorted(model)]
        assert list(by_id) == fragments.ids.tolist() == sorted(model)
        # What was there is taken over by its bytes, and is the same when it is read.
        assert Manifest.from_bytes(fragments.encoded()).fragments == fragments == expected
        assert fragments.num_rows == sum(one.num_rows for one in expected)
        places = np.array(rng.sample(range(len(expected)), len(expected) // 2), np.int64)
        assert fragments.take(places) == [expected[place] for place in places]


def test_file_versions_are_those_of_all_data_files():
    older = [dataclasses.replace(file, minor_version=0) for file in MANY[1].files]
    mixed = dataclasses.replace(MANY[2], files=(*older, *MANY[2].files))
    without = dataclasses.replace(MANY[3], files=())
    for fragments, expected in [
        ([], set()),
        ([without], set()),
        ([MANY[0], without], {(2, 1)}),
        ([MANY[0], dataclasses.replace(MANY[1], files=tuple(older))], {(2, 0), (2, 1)}),
        ([mixed], {(2, 0), (2, 1)}),
    ]:
        of_values = Fragments.of(fragments)
        assert of_values.file_versions == expected
        read = Manifest.from_bytes(of_values.encoded()).fragments
        assert read.file_versions == expected
        more = Manifest.from_bytes(
            Fragments.of([*fragments, MANY[9]]).encoded(), known=read
        ).fragments
        assert more.file_versions == expected | {(2, 1)}
        assert more.take(np.arange(len(fragments))).file_versions == expected


def test_encoded_columns_equal_fragments():
    mixed = [
        *MANY[:5],
        fragment(5, deleted=9),
        dataclasses.replace(MANY[6], files=(), row_ids=None),
    ]
    mixed += [dataclasses.replace(MANY[7], files=MANY[7].files * 2, physical_rows=0)]
    read = Manifest.from_bytes(Fragments.of(mixed).encoded()).fragments
    for field in dataclasses.fields(read.columns):
        found, expected = (getattr(one.columns, field.name) for one in (read, Fragments.of(mixed)))
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
    assert read.file_versions == {(2, 1)}
    assert [one for some in read.sources("row_ids") for one in some] == [
        one.row_ids for one in mixed
    ]
    assert not any(read.items), "columns are read without a fragment"


def test_changed_fragments_reuse_encoded_bytes():
    read = Manifest.from_bytes(manifest(*MANY).to_bytes()).fragments
    changed = read.changed([fragment(5, deleted=3), fragment(300)], [7, 8])
    assert Manifest.from_bytes(changed.encoded()).fragments.ids.tolist() == [
        *range(7),
        *range(9, 301),
    ]
    assert [one.id for one in read.items if one is not None] == []


def test_single_ranges_decodes_row_ids_in_bulk():
    ranges = [RowIdSequence.consecutive(100 * n, n + 1).to_bytes() for n in range(20)]
    low, high = single_ranges(ranges)
    assert low.tolist() == [100 * n for n in range(20)]
    assert high.tolist() == [101 * n for n in range(20)]
    two = RowIdSequence.from_array([1, 2]).to_bytes() + RowIdSequence.from_array([9]).to_bytes()
    for other in (None, b"", two, RowIdSequence.consecutive(0, 0).to_bytes()):
        assert single_ranges([*ranges, other]) is None
    # As many ranges as sequences, but not one in each.
    assert single_ranges([*ranges[:-1], b"", two]) is None


def test_decoded_fragments_are_shared_with_whole_version():
    whole = Manifest.from_bytes(manifest(*MANY).to_bytes()).fragments
    assert not any(whole.items)
    some = whole.take(np.array([7, 250, 9]))[1:]
    assert list(some) == [MANY[250], MANY[9]]
    assert [place for place, item in enumerate(whole.items) if item] == [9, 250]
    assert whole.items[9] is some[1]
    assert len(pickle.dumps(some)) < 2 * len(pickle.dumps(whole.take(np.array([250, 9]))))
    assert list(pickle.loads(pickle.dumps(some))) == list(some)


@pytest.mark.parametrize("are_stored", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_differing_fragments_equal_dict_model(seed, are_stored):
    rng = random.Random(seed)
    every = [MANY]
    for _ in range(5):
        every.append(others(every[-1], rng))
    versions = [
        Manifest.from_bytes(manifest(*one).to_bytes()).fragments
        if are_stored
        else Fragments.of(one)
        for one in every
    ]
    # A difference is kept until another one is asked for.
    for _ in range(30):
        old, new = rng.randrange(6), rng.randrange(6)
        before, after = ({one.id: one for one in every[at]} for at in (old, new))
        only_before, only_after = versions[old].differing(versions[new])
        assert only_before == [one for key, one in before.items() if after.get(key) != one]
        assert only_after == [one for key, one in after.items() if before.get(key) != one]


@pytest.mark.parametrize("seed", range(4))
def test_versions_in_pieces_differ_as_dict_model(seed, shares_few_bytes):
    rng = random.Random(seed)
    every, versions = [MANY], [Manifest.from_bytes(manifest(*MANY).to_bytes()).fragments]
    for _ in range(8):
        every.append(others(every[-1], rng))
        data = manifest(*every[-1]).to_bytes()
        versions.append(Manifest.from_bytes(data, known=versions[-1]).fragments)
    assert max(len(one.stored.pieces) for one in versions) > 2
    for _ in range(30):
        old, new = rng.randrange(9), rng.randrange(9)
        before, after = ({one.id: one for one in every[at]} for at in (old, new))
        only_before, only_after = versions[old].differing(versions[new])
        assert only_before == [one for key, one in before.items() if after.get(key) != one]
        assert only_after == [one for key, one in after.items() if before.get(key) != one]
