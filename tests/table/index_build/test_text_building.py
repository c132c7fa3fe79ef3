"""Full-text indices that we make: as those of pylance, used by pylance and by us."""

from __future__ import annotations

import pickle
import random

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from local_changes import delete_rows
from random_seeds import grid, seeds
from row_changes import set_to
from table_access import read_ours
from text_tables import WORDS, assert_same, from_pylance, ours, random_query, texts

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index.inverted import tokenizers
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.inverted.tokenizers import Tokenizer
from pyspark_lance.table.index_build import text_build
from pyspark_lance.table.index_build.column_indices import (
    create_index,
    optimize_indices,
    refresh_indices,
)
from pyspark_lance.table.index_build.index_plan import IndexRequest, plan_index, plan_index_refresh
from pyspark_lance.table.index_build.text_build import TextPostings
from pyspark_lance.table.refs import create_branch
from pyspark_lance.table.sort import read_batches
from pyspark_lance.table.text.queries import Match, Operator
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

OPTIONS = {
    "default": {},
    "positions": {"with_position": True},
    "blocks of 256": {"block_size": 256, "with_position": True},
    "whitespace": {"base_tokenizer": "whitespace", "stem": False, "lower_case": False},
    "ngram": {"base_tokenizer": "ngram", "max_ngram_length": 4, "prefix_only": True},
    "raw": {"base_tokenizer": "raw", "max_token_length": None, "stem": False},
    "French": {"language": "French", "remove_stop_words": False, "ascii_folding": False},
    "own stop words": {"custom_stop_words": ["w3", "dog"], "with_position": True},
}


def build(path, name="by_s", column="s", *, replaced=False, rows_per_segment=1 << 20, **options):
    text = TokenizerOptions.from_mapping(options) if options else None
    request = IndexRequest(
        (column,), "inverted", name, replaced, rows_per_segment=rows_per_segment, text=text
    )
    return create_index(Table(str(path)), request)


def entries(path, name="by_s"):
    return [one for one in Snapshot.open(Table(str(path))).indices if one.name == name]


def content(path, entry, file):
    return LanceFileReader(f"{path}/_indices/{entry.uuid}/{file}")


def two_tables(tmp_path, rng, rows=1500, per_file=400, *, stable=False):
    """The same rows twice: for an index of ours, and for one of pylance."""
    table = pa.table({"id": np.arange(rows), "s": texts(rng, rows)})
    for name in ("ours", "theirs"):
        lance.write_dataset(
            table, str(tmp_path / name), max_rows_per_file=per_file, enable_stable_row_ids=stable
        )
        lance.dataset(str(tmp_path / name)).delete("id % 50 = 7")
    return tmp_path / "ours", tmp_path / "theirs"


@pytest.mark.parametrize("seed", seeds(4, in_ci=1))
@pytest.mark.parametrize("name", OPTIONS)
def test_pylance_scores_equally_with_our_index(tmp_path, name, seed):
    rng = np.random.default_rng([len(name), seed])
    mine, their = two_tables(tmp_path, rng, stable=len(name) % 2 == 0)
    build(mine, rows_per_segment=rng.choice([450, 10_000]), **OPTIONS[name])
    lance.dataset(str(their)).create_scalar_index("s", "INVERTED", name="by_s", **OPTIONS[name])
    for _ in range(10):
        query = random_query(rng, phrases=OPTIONS[name].get("with_position", False))
        expected = from_pylance(their, query)
        assert_same(from_pylance(mine, query), expected)
        assert_same(from_pylance(mine, query, k=5), from_pylance(their, query, k=5), 5)
        assert_same(ours(mine, query)[0], expected)
    plan = lance.dataset(str(mine)).scanner(full_text_query="dog").explain_plan()
    assert "MatchQuery" in plan and "FlatMatchQuery" not in plan
    assert not verify(Table(str(mine)), read_data=True).errors
    lance.dataset(str(mine)).validate()


@pytest.mark.parametrize("positions", [False, True])
def test_text_index_files_equal_pylance(tmp_path, positions):
    """Documents, postings, impacts and positions byte by byte; scores but for their last bits."""
    rng = np.random.default_rng(5)
    some = [*WORDS[:30], *("often " * 9 for _ in range(9)), "word " * 700]
    rows = [" ".join(rng.choice(some, 12)) for _ in range(9_000)]
    for name in ("ours", "theirs"):
        lance.write_dataset(pa.table({"s": rows}), str(tmp_path / name))
    mine, their = tmp_path / "ours", tmp_path / "theirs"
    build(mine, with_position=positions)
    lance.dataset(str(their)).create_scalar_index(
        "s", "INVERTED", name="by_s", with_position=positions
    )
    (own,), (other,) = entries(mine), entries(their)
    assert own.index_version == other.index_version
    assert own.fragment_bitmap == other.fragment_bitmap
    assert details(own) == details(other)
    names = ("metadata.lance", "part_0_docs.lance", "part_0_invert.lance")
    files = {name: [content(mine, own, name), content(their, other, name)] for name in names}
    for name, (first, second) in files.items():
        assert first.metadata().schema == second.metadata().schema, name
        found, expected = (one.metadata().schema.metadata for one in (first, second))
        expected[b"token_set_format"] = found[b"token_set_format"] = b""
        assert found == expected, name
    docs = [file.read_all().to_table() for file in files["part_0_docs.lance"]]
    assert docs[0] == docs[1]
    lists = [file.read_all().to_table().to_pylist() for file in files["part_0_invert.lance"]]
    tokens = content(mine, own, "part_0_tokens.lance").read_all().to_table()["_token"].to_pylist()
    assert tokens == sorted(tokens, key=str.encode)
    assert len(lists[0]) == len(lists[1]) == len(tokens)

    def key(row):
        return row["_length"], row["_impacts"], [block[4:] for block in row["_posting"]]

    for first, second in zip(sorted(lists[0], key=key), sorted(lists[1], key=key), strict=True):
        scores = [[np.frombuffer(block[:4], "<f4")[0] for block in row.pop("_posting")]
                  for row in (dict(first), dict(second))]  # fmt: skip
        np.testing.assert_allclose(scores[0], scores[1], rtol=1e-6)
        np.testing.assert_allclose(first.pop("_max_score"), second.pop("_max_score"), rtol=1e-6)
        cut = [[block[4:] for block in row.pop("_posting")] for row in (first, second)]
        assert cut[0] == cut[1]
        assert first == second


def details(entry):
    from pyspark_lance.format.wire import parse_message
    from pyspark_lance.proto import table_pb2

    message = parse_message(table_pb2.IndexMetadata, entry.raw).index_details
    return message.type_url, message.value


@pytest.mark.parametrize("most", [1, 300, 5_000])
@pytest.mark.parametrize("positions", [False, True])
def test_spilled_tokens_equal_in_memory_tokens(monkeypatch, most, positions):
    rng = np.random.default_rng(most)
    monkeypatch.setattr(text_build, "_CHUNK_POSTINGS", 700)
    monkeypatch.setattr(text_build, "_MAX_TEXTS", 60)
    values = pa.array(texts(rng, 600 if most > 1 else 200), pa.string())
    ids = np.arange(len(values), dtype=np.uint64) * 3 + (5 << 32)
    options = TokenizerOptions(with_position=positions)
    found = []
    for max_tokens in (most, 1 << 30):
        with TextPostings(options, max_tokens) as collected:
            for start in range(0, len(values), 30):
                collected.add(values.slice(start, 30), ids[start : start + 30])
            rows, lengths = collected.documents()
            terms = list(collected.terms())
            assert (len(collected.paths) > 1) == (max_tokens == most)
            assert most == 1 or len(terms) > 1
            found.append((rows.tolist(), lengths.tolist(), every_posting(terms, positions)))
    assert found[0] == found[1]
    rows, lengths, postings = found[0]
    expected = {}
    documents = [Tokenizer(options).tokenize_text(text or "") for text in values.to_pylist()]
    kept = [tokens for tokens in documents if tokens]
    for number, tokens in enumerate(kept):
        for token, place in tokens:
            expected.setdefault(token, {}).setdefault(number, []).append(place)
    assert lengths == list(map(len, kept))
    assert rows == [int(row) for row, tokens in zip(ids, documents, strict=True) if tokens]
    if not positions:
        expected = {t: {d: len(p) for d, p in own.items()} for t, own in expected.items()}
    assert postings == expected


@pytest.mark.parametrize("positions", [False, True])
def test_merged_runs_are_encoded_in_small_parts(monkeypatch, positions):
    rng = np.random.default_rng(7)
    monkeypatch.setattr(text_build, "_CHUNK_POSTINGS", 300)
    monkeypatch.setattr(text_build, "_RUN_POSTINGS", 50)
    monkeypatch.setattr(text_build, "_MAX_TEXTS", 30)
    values = pa.array(texts(rng, 900), pa.string())
    options = TokenizerOptions(with_position=positions)
    with TextPostings(options, 500) as collected:
        for start in range(0, len(values), 30):
            collected.add(values.slice(start, 30), np.arange(start, start + 30, dtype=np.uint64))
        terms = list(collected.terms())
        batches = [one for path in collected.paths for one in read_batches(path)]
    assert len(terms) > 10
    for part in terms:
        numbers = part.documents if part.positions is None else part.positions
        assert len(part.names) == 1 or len(numbers) <= 300
    assert len(batches) > 2 * len(collected.paths) > 20
    for batch in batches:
        assert batch.num_rows == 1 or max(len(one.flatten()) for one in batch.columns[1:]) <= 50


def every_posting(terms, positions):
    found = {}
    for part in terms:
        starts = np.cumsum(part.frequencies) - part.frequencies
        for name, end, count in zip(part.names.to_pylist(), part.ends, part.counts, strict=True):
            assert name not in found
            own = found[name] = {}
            for place in range(end - count, end):
                often = int(part.frequencies[place])
                if positions:
                    often = part.positions[starts[place] : starts[place] + often].tolist()
                own[int(part.documents[place])] = often
    assert list(found) == sorted(found, key=str.encode)
    return found


def test_numbers_beyond_63_bits_are_sorted(monkeypatch):
    monkeypatch.setattr(text_build, "_SIXTY_THREE", 5)
    test_spilled_tokens_equal_in_memory_tokens(monkeypatch, 300, True)


def test_text_task_runs_in_other_process(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"s": ["dogs run", None, ""]}), path)
    plan = plan_index(Table(path), IndexRequest(("s",), "inverted"), ChangeSettings())
    (task,) = pickle.loads(pickle.dumps(plan.tasks))
    assert set(task.run().file_sizes) == set(text_build.TEXT_FILES)


def test_text_index_supports_lists_large_strings_and_structs(tmp_path):
    path = str(tmp_path / "t")
    lists = [["red cat", None, "dog"], None, [], ["a cat"], ["cat"] * 3]
    table = pa.table(
        {
            "l": pa.array(lists, pa.list_(pa.string())),
            "g": pa.array(["red cat", None, "", "cats", "dog"], pa.large_string()),
            "o": pa.array([{"x": "cat"}, None, {"x": None}, {"x": "a dog"}, {"x": "cats"}]),
        }
    )
    lance.write_dataset(table, path)
    for column, found in (("l", [0, 3, 4]), ("g", [0, 3]), ("o.x", [0, 4])):
        build(path, column, column)
        assert not verify(Table(path), read_data=True).errors
        if column == "o.x":
            continue
        table = lance.dataset(path).to_table(
            full_text_query={"columns": [column], "query": "cat"}, columns=[], with_row_id=True
        )
        assert sorted(table["_rowid"].to_pylist()) == found, column


def test_text_index_of_table_without_tokens(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"s": pa.array([], pa.string())}), path)
    build(path, with_position=True)
    lance.write_dataset(pa.table({"s": ["the", None, ""]}), path, mode="append")
    refresh_indices(Table(path))
    assert len(entries(path)) == 1
    assert lance.dataset(path).to_table(full_text_query="dog").num_rows == 0
    assert not verify(Table(path), read_data=True).errors
    lance.write_dataset(pa.table({"s": ["a dog"]}), path, mode="append")
    optimize_indices(Table(path))
    assert lance.dataset(path).to_table(full_text_query="dog").num_rows == 1
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=10)
    assert lance.dataset(path).to_table(full_text_query="dog").num_rows == 1


def matching(path, word, options):
    """Rows whose text has a word now, by the tokenizer alone; row ids."""
    table = read_ours(str(path), system_columns=("_rowid",))
    tokenizer = Tokenizer(options)
    wanted = {token for token, _ in tokenizer.tokenize_text(word)}
    return {
        row
        for row, text in zip(table["_rowid"].to_pylist(), table["s"].to_pylist(), strict=True)
        if wanted & {token for token, _ in tokenizer.tokenize_text(text or "")}
    }


def check_found(path, rng, options):
    """All rows that have a word, and no other rows, by pylance and by this package."""
    for word in rng.sample(WORDS[:25], 5):
        expected = matching(path, word, options)
        found, _ = ours(path, Match(word, "s"))
        assert set(found) == expected, word
        assert set(from_pylance(path, Match(word, "s"))) == expected, word


@pytest.mark.parametrize("seed", seeds(100, in_ci=1))
def test_text_search_follows_random_changes(tmp_path, seed):
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    path = str(tmp_path / "t")
    stable = seed % 2 == 1
    known = 0

    def append() -> None:
        nonlocal known
        table = pa.table({"id": np.arange(known, known + 60), "s": texts(numbers, 60, WORDS[:40])})
        lance.write_dataset(
            table, path, mode="append" if known else "create", max_rows_per_file=25,
            enable_stable_row_ids=stable,
        )  # fmt: skip
        known += 60

    append()
    options = rng.choice([{}, {"with_position": True}, {"base_tokenizer": "whitespace"}])
    if seed % 3:
        build(path, rows_per_segment=rng.choice([30, 100]), **options)
    else:
        more = rng.choice([{}, {"format_version": 1}, {"block_size": 256}])
        lance.dataset(path).create_scalar_index("s", "INVERTED", name="by_s", **options, **more)
        options |= {k: v for k, v in more.items() if k == "block_size"}
    text = TokenizerOptions.from_mapping(options)
    steps = [
        append,
        lambda: delete_rows(path, f"id % 7 = {rng.randint(0, 6)}"),
        lambda: set_to(path, f"id % 5 = {rng.randint(0, 4)}", s="quick brown fox"),
        lambda: set_to(path, f"id % 5 = {rng.randint(0, 4)}", id=3),
        lambda: lance.dataset(path).update({"s": "'lazy dogs walked'"}, where="id % 11 = 4"),
        lambda: lance.dataset(path).delete(f"id % 13 = {rng.randint(0, 12)}"),
        lambda: compact(
            Table(path), CompactionRequest(target_rows_per_fragment=rng.choice([50, 1000]))
        ),
        lambda: refresh_indices(Table(path), rows_per_segment=rng.choice([30, 1000])),
        lambda: optimize_indices(Table(path), rows_per_segment=rng.choice([30, 1000])),
    ]
    if not stable:  # Lance's own maintenance loses track of rows there.
        steps += [
            lambda: lance.dataset(path).optimize.optimize_indices(
                num_indices_to_merge=rng.choice([0, 1, 10])
            ),
            lambda: lance.dataset(path).optimize.compact_files(),
        ]
    check_found(path, rng, text)
    for step in rng.choices(steps, k=7):
        step()
        check_found(path, rng, text)
    refresh_indices(Table(path))
    check_found(path, rng, text)
    for _ in range(10):
        query = random_query(numbers, phrases=text.with_position)
        assert_same(ours(path, query)[0], from_pylance(path, query))
    assert not verify(Table(path), read_data=True).errors
    lance.dataset(path).validate()
    if not stable:
        lance.dataset(path).optimize.optimize_indices()
        lance.dataset(path).optimize.compact_files()
        check_found(path, rng, text)


MERGED = {
    "ours": {"with_position": True},
    "ours without positions": {},
    "blocks of 256": {"block_size": 256, "with_position": True},
    "lances": {"with_position": True},
    "lances, format 1": {"with_position": True, "format_version": 1},
    "lances, blocks of 256": {"block_size": 256, "with_position": True},
}


@pytest.mark.parametrize(("name", "stable"), grid(list(MERGED), [False, True]))
def test_merged_text_segments_equal_rebuilt_index(tmp_path, monkeypatch, name, stable):
    """Texts of rows that segments have are not read again, and need not be there."""
    monkeypatch.setattr(text_build, "_CHUNK_POSTINGS", 300)
    monkeypatch.setattr(text_build, "_MIN_STORED", 100)
    rng = np.random.default_rng([len(name), stable])
    mine, other = two_tables(tmp_path, rng, per_file=250, stable=stable)
    options = MERGED[name]
    for path in (mine, other):
        if name.startswith("lances"):
            segments(path, [options] * 6)
        else:
            build(path, rows_per_segment=400, **options)
        set_to(str(path), "id % 90 = 4", s="quick brown fox jumps")
        set_to(str(path), "id % 70 = 4", id=-1)
        lance.dataset(str(path)).delete("id % 20 = 3")
        lance.write_dataset(pa.table({"id": [9, 9], "s": ["lazy dog", "fox"]}), path, mode="append")
    known = {number for entry in entries(mine) for number in entry.fragment_bitmap}
    files = [
        mine / "data" / fragment.files[0].path
        for fragment in Snapshot.open(Table(str(mine))).manifest.fragments
        if fragment.id in known
    ]
    assert len(files) == 6 and len(entries(mine)) > 1
    for file in files:
        file.rename(file.with_suffix(".away"))
    optimize_indices(Table(str(mine)))
    for file in files:
        file.with_suffix(".away").rename(file)
    (entry,) = entries(mine)
    own = {key: value for key, value in options.items() if key != "format_version"}
    build(other, replaced=True, **own)
    (rebuilt,) = entries(other)
    assert entry.fragment_bitmap == rebuilt.fragment_bitmap
    tokens, lengths = ([content(path, one, file).read_all().to_table()[column].to_pylist()
        for path, one in ((mine, entry), (other, rebuilt))]
        for file, column in (("part_0_tokens.lance", "_token"), ("part_0_invert.lance", "_length"))
    )  # fmt: skip
    assert tokens[0] == tokens[1] and lengths[0] == lengths[1]
    for _ in range(10):
        query = random_query(rng, phrases="with_position" in options)
        expected = from_pylance(other, query)
        for found in (from_pylance(mine, query), ours(mine, query)[0]):
            assert_same(found, expected)
    assert not verify(Table(str(mine)), read_data=True).errors
    lance.dataset(str(mine)).validate()


def segments(path, options):
    """An index of pylance with a segment for each fragment."""
    dataset = lance.dataset(str(path))
    own = [
        dataset.create_index_uncommitted("s", "INVERTED", name="by_s", fragment_ids=[number], **one)
        for number, one in enumerate(options)
    ]
    dataset.commit_existing_index_segments("by_s", "s", own)


@pytest.mark.parametrize(
    ("first", "last", "merged"),
    [
        ({"stem": False}, {}, False),
        ({}, {"with_position": True}, False),
        ({"with_position": True}, {}, True),
        ({"block_size": 256}, {}, True),
    ],
)
def test_only_segments_with_equal_tokens_are_merged(tmp_path, first, last, merged):
    path = tmp_path / "t"
    for rows in (["running dogs", "a fox"] * 20, ["dog runs"] * 5):
        table = pa.table({"id": np.arange(len(rows)), "s": rows})
        lance.write_dataset(table, str(path), mode="append")
    segments(path, [first, last])
    refresh = plan_index_refresh(
        Table(str(path)), "by_s", ChangeSettings(), 1000, rows_per_joined=1000
    )
    (task,) = refresh.tasks
    assert len(task.joined) == 1 + merged
    optimize_indices(Table(str(path)))
    assert len(entries(path)) == 1
    for word, count in (("dog", 25), ("run", 25), ("fox", 20)):
        assert len(ours(path, Match(word, "s"))[0]) == len(from_pylance(path, word)) == count


@pytest.mark.parametrize("act", [refresh_indices, optimize_indices])
def test_pylance_finds_no_row_by_old_text(tmp_path, act, monkeypatch):
    """With stable row ids the old segment has the row id, too."""
    monkeypatch.setattr(text_build, "_ROWS_AT_ONCE", 7)
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(100), "s": ["river"] * 50 + ["mountain"] * 50})
    lance.write_dataset(rows, path, max_rows_per_file=50, enable_stable_row_ids=True)
    build(path, rows_per_segment=50)
    set_to(path, "id >= 40 AND id < 50", s="desert")
    act(Table(path))
    for word, count in (("river", 40), ("desert", 10), ("mountain", 50)):
        assert len(from_pylance(path, word)) == len(ours(path, Match(word, "s"))[0]) == count
        found = lance.dataset(path).to_table(full_text_query=word, columns=[], with_row_id=True)
        assert found.num_rows == count
    if act is refresh_indices:
        assert len(entries(path)) > 1


def test_pylance_finds_no_deleted_rows_after_compaction(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(100), "s": ["river"] * 100})
    lance.write_dataset(rows, path, max_rows_per_file=25, enable_stable_row_ids=True)
    build(path)
    delete_rows(path, "id % 3 = 0")
    compact(Table(path))
    for _ in range(2):
        found = lance.dataset(path).to_table(full_text_query="river", columns=[], with_row_id=True)
        assert found.num_rows == 66
        limited = lance.dataset(path).to_table(full_text_query="river", columns=["id"], limit=60)
        assert limited.num_rows == 60
        refresh_indices(Table(path))


def test_in_place_text_replaces_indexed_text(tmp_path):
    """The row keeps its address, which the old segment names, and a new segment covers."""
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(40), "s": ["river"] * 40})
    lance.write_dataset(rows, path, max_rows_per_file=20)
    build(path)
    new = pa.table({"id": [1, 2, 3], "s": ["desert"] * 3})
    dataset = lance.dataset(path)
    fragment, fields = dataset.get_fragment(0).update_columns(new, "id")
    operation = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    lance.LanceDataset.commit(path, operation, read_version=dataset.version)
    refresh_indices(Table(path))
    assert len(from_pylance(path, "river")) == len(ours(path, Match("river", "s"))[0]) == 37
    assert len(from_pylance(path, "desert")) == 3
    assert not verify(Table(path), read_data=True).errors


def test_text_index_follows_deferred_compaction(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(100), "s": ["river"] * 50 + ["mountain"] * 50})
    lance.write_dataset(rows, path, max_rows_per_file=25)
    build(path)
    delete_rows(path, "id % 3 = 0")
    compact(Table(path), CompactionRequest(defer_index_remap=True))
    assert len(from_pylance(path, "river")) == len(ours(path, Match("river", "s"))[0]) == 33
    assert refresh_indices(Table(path)).version is None  # It covers the new fragment by the map.
    lance.write_dataset(rows.slice(0, 10), path, mode="append")
    assert refresh_indices(Table(path)).num_rows == 10
    assert len(from_pylance(path, "river")) == len(ours(path, Match("river", "s"))[0]) == 43


def test_invalid_text_index_requests_are_refused(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"s": ["a"], "n": [1]}), path)
    with pytest.raises(UnsupportedFeatureError, match=r"'n' of type .* have an inverted"):
        build(path, column="n")
    for kind in ("icu", "jieba/default", "code"):
        with pytest.raises(UnsupportedFeatureError, match=f"tokenizer '{kind}'"):
            build(path, base_tokenizer=kind)
    with pytest.raises(UnsupportedFeatureError, match="stems of Tamil"):
        build(path, language="Tamil")
    with pytest.raises(InvalidInputError, match="no option 'stemming'"):
        build(path, stemming=True)
    with pytest.raises(InvalidInputError, match="tokens of texts"):
        create_index(Table(path), IndexRequest(("s",), "ngram", text=TokenizerOptions()))
    with pytest.raises(InvalidInputError, match="stem is for inverted indices, not for btree"):
        text_build.tokenizer_options("btree", {"stem": False, "language": None})
    assert text_build.tokenizer_options("inverted", {"max_token_length": 0}) == (
        TokenizerOptions(max_token_length=None)
    )
    assert text_build.index_kind("FTS") == "inverted"
    assert not list((tmp_path / "t").glob("_indices/*"))


def test_missing_stemmer_package_is_refused_with_hint(tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"s": ["a dog"]}), path)

    def missing(name):
        raise ModuleNotFoundError(name)

    tokenizers.stemmer.cache_clear()
    monkeypatch.setattr(tokenizers.importlib, "import_module", missing)
    with pytest.raises(UnsupportedFeatureError, match="snowballstemmer") as error:
        build(path)
    assert "pyspark-lance[text]" in error.value.hint
    build(path, stem=False)


def test_index_with_unsupported_tokenizer_is_unchanged(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"s": ["a dog"]}), path)
    lance.dataset(path).create_scalar_index("s", "INVERTED", name="by_s", base_tokenizer="icu")
    lance.write_dataset(pa.table({"s": ["a cat"]}), path, mode="append")
    before = entries(path)
    assert refresh_indices(Table(path)).version is None
    assert entries(path) == before
    with pytest.raises(UnsupportedFeatureError, match="icu"):
        refresh_indices(Table(path), "by_s")


def test_and_of_words_in_several_segments(tmp_path):
    rng = np.random.default_rng(3)
    mine, their = two_tables(tmp_path, rng)
    build(mine, rows_per_segment=450)
    assert len(entries(mine)) > 2
    lance.dataset(str(their)).create_scalar_index("s", "INVERTED", name="by_s")
    query = Match("dog cat", "s", Operator.AND)
    assert_same(from_pylance(mine, query), from_pylance(their, query))
    optimize_indices(Table(str(mine)))
    assert len(entries(mine)) == 1
    assert_same(from_pylance(mine, query), ours(mine, query)[0])


def test_verify_detects_wrong_token_counts(tmp_path):
    """The tokens of the column are those of the index, but for how often one is there."""
    path = str(tmp_path / "t")
    rows = ["dog cat", "dog cat cat", "a river"] * 20
    lance.write_dataset(pa.table({"s": rows}), path)
    build(path)
    assert verify(Table(path), read_data=True).findings == ()
    new = pa.table({"s": ["dog cat", "dog dog cat", "a river"] * 20})
    lance.write_dataset(new, str(tmp_path / "other"))
    build(tmp_path / "other")
    (own,), (other,) = entries(path), entries(tmp_path / "other")
    for name in text_build.TEXT_FILES:
        source = tmp_path / "other" / "_indices" / str(other.uuid) / name
        (tmp_path / "t" / "_indices" / str(own.uuid) / name).write_bytes(source.read_bytes())
    assert own.file_sizes == other.file_sizes
    (problem,) = verify(Table(path), read_data=True).findings
    assert problem.kind == "index_content"


def test_restored_version_and_branch_use_own_segments(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1, 2], "s": ["a river", "a dog"]}), path)
    build(path)
    version = lance.dataset(path).version
    lance.write_dataset(pa.table({"id": [3], "s": ["two rivers"]}), path, mode="append")
    refresh_indices(Table(path))
    assert len(entries(path)) == 2
    restore(Table(path), VersionSpec(version=version))
    assert len(entries(path)) == 1
    assert len(from_pylance(path, "river")) == 1
    create_branch(Table(path), "other")
    branch = Table(path, branch="other")
    lance.dataset(path).checkout_version(("other", None)).insert(
        pa.table({"id": [4], "s": ["the river"]})
    )
    refresh_indices(branch)
    on_branch = lance.dataset(path).checkout_version(("other", None))
    assert on_branch.to_table(full_text_query="river").num_rows == 2
    assert len(ours(branch, Match("river", "s"))[0]) == 2
    assert len(from_pylance(path, "river")) == 1
    assert not verify(branch, read_data=True).errors
