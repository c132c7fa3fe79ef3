"""MinHash indices: signatures, rows and distances of pylance, both libraries' indices."""

from __future__ import annotations

import shutil

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.query import MinHashQuery

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.index import minhash
from pyspark_lance.table.index.index_status import index_status
from pyspark_lance.table.index.minhash import MinHashOptions, Signer, band_keys, options_of
from pyspark_lance.table.index_build.column_indices import (
    create_index,
    optimize_indices,
    refresh_indices,
)
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.index_build.text_build import index_kind
from pyspark_lance.table.nearest.exact_search import concat_found
from pyspark_lance.table.scan.plan_scan import predicate_schema, project
from pyspark_lance.table.text import near_duplicates as search
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

WORDS = [f"w{number}" for number in range(60)]
ODD = [
    "one",
    "two words",
    None,
    "",
    "... !",
    "Ünïcode Äpfel größer als Birnen",
    "x" * 60,
    "日本 文字 列",
]


def texts_of(rng, count):
    """Texts in families, of which some words differ."""
    families = [rng.choice(WORDS, 30).tolist() for _ in range(max(1, count // 5))]
    found = []
    for _ in range(count):
        own = list(families[rng.integers(len(families))])
        for place in rng.integers(0, 30, rng.integers(0, 6)).tolist():
            own[place] = f"other{rng.integers(1000)}"
        found.append(" ".join(own))
    return found


def rows_of(texts, start=0):
    ids = np.arange(start, start + len(texts))
    return pa.table({"id": ids, "body": pa.array(texts, pa.string())})


@pytest.mark.parametrize("longest", [39, 40])
def test_ascii_texts_have_signatures_of_any_texts(longest):
    texts = ["One two", "two-THREE,  four_5", None, "", " .! ", " x", f"a {'y' * longest} b", "two"]
    texts += [*texts_of(np.random.default_rng(2), 20), "one TWO", ""]
    signer = Signer(MinHashOptions())
    found, signatures = signer.sign(pa.array(texts, pa.large_string())[1:])
    # Another text that is no ASCII changes how these are tokenized.
    expected, others = signer.sign(pa.array([*texts[1:], "Äpfel"]))
    assert found.tolist() == expected[:-1].tolist()
    assert signatures.tolist() == others[:-1].tolist()
    assert signatures[-1].tolist() == signer.sign(pa.array(["One two"]))[1][0].tolist()


def make(path, *, stable=True, count=120, by="pylance", seed=1):
    texts = texts_of(np.random.default_rng(seed), count) + ODD
    lance.write_dataset(rows_of(texts), path, max_rows_per_file=50, enable_stable_row_ids=stable)
    if by == "pylance":
        lance.dataset(path).create_scalar_index("body", "MINHASHLSH", name="by_body")
    elif by == "us":
        create_index(Table(path), IndexRequest(("body",), "minhash_lsh", name="by_body"))
    return texts


@pytest.mark.parametrize("has_index", [True, False])
def test_near_duplicates_cover_struct_fields(tmp_path, has_index):
    path, nested = str(tmp_path / "t"), str(tmp_path / "nested")
    texts = make(path, by=None)
    found = [{"n": 1, "t": text} for text in texts]
    lance.write_dataset(pa.table({"id": np.arange(len(texts)), "st": found}), nested)
    if has_index:
        create_index(Table(nested), IndexRequest(("st.t",), "minhash_lsh"))
        lance.write_dataset(pa.table({"id": [-1], "st": [found[0]]}), nested, mode="append")
    _, expected = ours(path, texts[:20], None)
    _, same = ours(nested, texts[:20], None)
    fragments = same.address >> np.uint64(32)
    same = same.at(fragments == 0) if has_index else same
    assert (fragments > 0).sum() == (np.sum(expected.row_id == 0) if has_index else 0)
    assert same.query.tolist() == expected.query.tolist()
    assert same.distance.tolist() == expected.distance.tolist()


def ours(path, queries, k=10, *, condition=None, most=None):
    snapshot = Snapshot.open(Table(path))
    column = search.near_duplicates_column(snapshot, None)
    predicate = condition and parse_predicate(condition, predicate_schema(snapshot.schema))
    request = search.NearDuplicatesRequest(
        column, k, most, predicate, project(snapshot.schema, ["id"]), ()
    )
    plan = search.plan_near_duplicates(snapshot, request)
    found = concat_found(list(search.near_duplicates(plan, pa.array(queries, pa.string()))))
    return plan, found


def assert_same(path, queries, k=10, *, condition=None):
    """The rows and distances of pylance; among equally near rows at the end it chooses others."""
    plan, found = ours(path, queries, k, condition=condition)
    dataset = lance.dataset(path, session=lance.Session())
    for number, query in enumerate(queries):
        expected = dataset.to_table(
            nearest=MinHashQuery(query or "", "body"), limit=k, filter=condition, prefilter=True,
            columns=["id", "_distance"], with_row_id=True,
        )  # fmt: skip
        mine = found.query == number
        own = dict(zip(found.row_id[mine].tolist(), found.distance[mine].tolist(), strict=True))
        their = dict(
            zip(expected["_rowid"].to_pylist(), expected["_distance"].to_pylist(), strict=True)
        )
        assert sorted(own.values()) == sorted(their.values())
        last = max(own.values(), default=0)
        near = {row for row, distance in own.items() if distance < last or len(own) < k}
        assert near == {row for row, one in their.items() if one < last or len(own) < k}
    return sorted(type(task).__name__ for task in plan.tasks)


def queries_of(texts):
    return [texts[3] + " more", texts[11], "one", "w1 w2", "", None, "...", texts[-2]]


def test_each_query_finds_k_rows(tmp_path):
    path = str(tmp_path / "t")
    rows = rows_of(["a b c d", "e f g h"] * 5)
    for part in (rows.slice(0, 6), rows.slice(6)):  # two fragments
        lance.write_dataset(part, path, mode="append")
    _, found = ours(path, ["a b c d", "e f g h"], 3)
    assert found.query.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.distance.tolist() == [0] * 6
    assert found.row_id.tolist()[:2] == [0, 2]


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("by", ["pylance", "us"])
def test_near_duplicates_equal_pylance(tmp_path, by, stable):
    path = str(tmp_path / "t")
    texts = make(path, stable=stable, by=by)
    for k in (1, 4, 100):
        assert assert_same(path, queries_of(texts), k) == ["MinHashSegmentTask"]
    for condition in ("id % 3 = 0", "id < 0", "id > 100"):
        assert_same(path, queries_of(texts), 50, condition=condition)


def test_files_of_segment_equal_those_of_pylance(tmp_path):
    from lance.file import LanceFileReader

    contents = {}
    for by in ("pylance", "us"):
        path = tmp_path / by
        make(str(path), by=by, count=700)
        for name in ("signatures.lance", "bands.lance"):
            (file,) = path.rglob(name)
            reader = LanceFileReader(str(file))
            metadata = dict(reader.metadata().schema.metadata)
            pages = reader.read_global_buffer(1) if name == "bands.lance" else b""
            rows = reader.read_all().to_table()
            contents[by, name] = rows.to_pydict(), metadata, bytes(pages)
        (entry,) = Snapshot.open(Table(str(path))).indices
        contents[by, "entry"] = options_of(entry), entry.index_version, entry.details_type
    for name in ("signatures.lance", "bands.lance", "entry"):
        assert contents["us", name] == contents["pylance", name]
    assert contents["us", "entry"][0] == MinHashOptions()


def test_rows_are_the_same_without_index(tmp_path):
    path, other = str(tmp_path / "t"), str(tmp_path / "u")
    texts = make(path)
    make(other, by="nobody")
    plan, without = ours(other, queries_of(texts))
    assert [type(task) for task in plan.tasks] == [search.MinHashScanTask] * len(plan.tasks)
    _, found = ours(path, queries_of(texts))
    assert found.row_id.tolist() == without.row_id.tolist()
    assert found.distance.tolist() == without.distance.tolist()


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("by", ["pylance", "us"])
def test_index_stays_correct_through_changes_of_both(tmp_path, by, stable):
    path = str(tmp_path / "t")
    texts = make(path, stable=stable, by=by)
    queries = queries_of(texts)
    rng = np.random.default_rng(4)
    lance.write_dataset(rows_of([texts[3], *texts_of(rng, 30)], 1000), path, mode="append")
    assert set(assert_same(path, queries, 100)) == {"MinHashSegmentTask", "MinHashScanTask"}
    lance.dataset(path).delete("id % 7 = 3")
    lance.dataset(path).update({"body": f"'{texts[11]}'"}, where="id = 20")
    lance.dataset(path).update({"id": "id + 5000"}, where="id = 11")
    assert_same(path, queries, 100)
    assert refresh_indices(Table(path)).numSegments >= 1
    assert set(assert_same(path, queries, 100)) == {"MinHashSegmentTask"}
    exact = ours(path, queries, 100)[1]
    compact(Table(path))
    compacted = ours(path, queries, 100)[1]
    assert compacted.distance.tolist() == exact.distance.tolist()
    if stable:
        assert assert_same(path, queries, 100) == ["MinHashSegmentTask"]
    else:  # pylance needs a segment that covers some fragment.
        lance.dataset(path).optimize.optimize_indices()
        assert assert_same(path, queries, 100) == ["MinHashSegmentTask"]
    lance.write_dataset(rows_of(texts_of(rng, 20), 2000), path, mode="append")
    optimize_indices(Table(path))
    assert assert_same(path, queries, 100) == ["MinHashSegmentTask"]
    lance.write_dataset(rows_of(texts_of(rng, 20), 3000), path, mode="append")
    lance.dataset(path).optimize.optimize_indices()
    assert_same(path, queries, 100)
    lance.dataset(path).optimize.compact_files()
    assert_same(path, queries, 100)
    assert not verify(Table(path), read_data=True).findings


def test_old_texts_of_updated_rows_are_not_found(tmp_path):
    path = str(tmp_path / "t")
    texts = make(path)
    lance.dataset(path).update({"body": "'nothing of it is left here'"}, where="id = 11")
    for _ in range(2):
        _, found = ours(path, [texts[11]], 100)
        assert 11 not in found.row_id.tolist()
        refresh_indices(Table(path))


def test_most_distance_limits_rows(tmp_path):
    path = str(tmp_path / "t")
    texts = make(path)
    _, every = ours(path, texts[:40], None)
    _, near = ours(path, texts[:40], None, most=0.25)
    assert near.row_id.tolist() == every.row_id[every.distance <= 0.25].tolist()
    assert 40 < len(near) < len(every)
    for wrong in ({"most": 1.5}, {"most": -1}, {"k": 0}):
        with pytest.raises(InvalidInputError):
            ours(path, texts[:1], **wrong)


def test_many_pairs_are_compared_in_parts(tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    texts = [one for one in make(path) if one]
    _, expected = ours(path, texts, 5)
    monkeypatch.setattr(search, "_MAX_PAIRS", 50)
    monkeypatch.setattr(search, "_PAIRS_AT_ONCE", 7)
    monkeypatch.setattr(search, "_QUERIES_AT_ONCE", 16)
    _, found = ours(path, texts, 5)
    assert found.query.tolist() == expected.query.tolist()
    assert found.row_id.tolist() == expected.row_id.tolist()


def test_pages_of_bands_are_read_where_keys_are(tmp_path):
    path = str(tmp_path / "t")
    texts = make(path, count=2500)
    for number in (0, 7, 999, 2400):
        assert_same(path, [texts[number]], 50)
    assert_same(path, texts[:40], 20)


def test_keys_of_several_pages_are_all_read(tmp_path):
    path = str(tmp_path / "t")
    texts = ["some words that are equal", *["the same few words"] * 12_000, "and some others here"]
    lance.write_dataset(rows_of(texts), path, enable_stable_row_ids=True)
    create_index(Table(path), IndexRequest(("body",), "minhash_lsh"))
    _, found = ours(path, ["the same few words"], None)
    assert found.row_id.tolist() == list(range(1, 12_001))
    assert not found.distance.any()


@pytest.mark.parametrize("flaw", ["missing", "truncated"])
def test_damaged_index_is_not_used(tmp_path, flaw):
    path = tmp_path / "t"
    texts = make(str(path))
    _, expected = ours(str(path), queries_of(texts))
    (file,) = (path / "_indices").rglob("bands.lance")
    if flaw == "missing":
        shutil.rmtree(file.parent)
    else:
        file.write_bytes(file.read_bytes()[:50])
    plan, found = ours(str(path), queries_of(texts))
    assert {type(task) for task in plan.tasks} == {search.MinHashScanTask}
    assert found.row_id.tolist() == expected.row_id.tolist()


def test_verify_finds_other_signatures(tmp_path):
    path = tmp_path / "t"
    texts = make(str(path), by="us")
    make(str(tmp_path / "u"), by="us", seed=2)
    for name in ("signatures.lance", "bands.lance"):
        (file,), (other,) = path.rglob(name), (tmp_path / "u").rglob(name)
        file.write_bytes(other.read_bytes())
    assert len(texts) == 128
    (found,) = verify(Table(str(path)), read_data=True).findings
    assert found.kind == "index_content"
    assert "it differs from the column of the fragments 0, 1, 2" in found.what


def test_deferred_remap_is_searched_without_index(tmp_path):
    path = str(tmp_path / "t")
    texts = make(path, stable=False)
    _, expected = ours(path, queries_of(texts))
    lance.dataset(path).optimize.compact_files(defer_index_remap=True)
    plan, found = ours(path, queries_of(texts))
    assert {type(task) for task in plan.tasks} == {search.MinHashScanTask}
    assert found.distance.tolist() == expected.distance.tolist()


def test_status_says_what_index_is_for(tmp_path):
    make(str(tmp_path / "t"), by="us")
    (status,) = index_status(Snapshot.open(Table(str(tmp_path / "t"))))
    assert (status.kind, status.is_used) == ("minhash_lsh", False)
    assert status.note == "it is for nearDuplicates; scans use no minhash_lsh index"
    assert {index_kind(name) for name in ("MINHASHLSH", "minhash", "minhash_lsh")} == {
        "minhash_lsh"
    }


def test_only_texts_have_minhash_indices(tmp_path):
    make(str(tmp_path / "t"), by="nobody")
    with pytest.raises(UnsupportedFeatureError, match="cannot have a minhash_lsh index"):
        create_index(Table(str(tmp_path / "t")), IndexRequest(("id",), "minhash_lsh"))


def test_signatures_do_not_depend_on_other_texts(monkeypatch):
    texts = texts_of(np.random.default_rng(3), 40) + ODD
    _, together = Signer(MinHashOptions()).sign(pa.array(texts))
    monkeypatch.setattr(minhash, "_MEMBERS_AT_ONCE", 60)
    _, in_parts = Signer(MinHashOptions()).sign(pa.array(texts))
    alone = [Signer(MinHashOptions()).sign(pa.array([text], pa.string()))[1] for text in texts]
    assert (in_parts == together).all()
    assert (np.concatenate(alone) == together).all()


def test_signatures_estimate_shared_runs_of_words():
    signer = Signer(MinHashOptions())
    texts = pa.array(["a b c d e f", "a b c d e f", None, "", "a b", "A  B", "f e d c b a"])
    places, signatures = signer.sign(texts)
    assert places.tolist() == [0, 1, 4, 5, 6]
    assert (signatures[0] == signatures[1]).all()
    assert (signatures[2] == signatures[3]).all()
    assert not (signatures[0] == signatures[4]).any()
    assert band_keys(signatures, signer.options).shape == (5, 16)
