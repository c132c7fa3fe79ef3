import glob
import re
import struct

import pytest

from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.feature_flags import (
    check_consistent,
    check_readable,
    check_writable,
    compute_flags,
    flags_as_markdown,
)
from pyspark_lance.proto import table_pb2

READABLE = {1, 2, 4, 8, 16, 32, 128, 256, 1024, 2048, 16384}
WRITABLE = READABLE - {1024} | {32768}


def accepts(check, *arguments):
    try:
        check(*arguments)
    except UnsupportedFeatureError:
        return False
    return True


def test_check_readable_accepts_exactly_implemented_flags():
    assert {1 << bit for bit in range(64) if accepts(check_readable, 1 << bit)} == READABLE
    check_readable(sum(READABLE))


@pytest.mark.parametrize("words", [lambda f: (f, 0), lambda f: (0, f), lambda f: (f, f)])
def test_check_writable_accepts_exactly_implemented_flags(words):
    flags = {1 << bit for bit in range(64)}
    assert {flag for flag in flags if accepts(check_writable, *words(flag))} == WRITABLE


def test_refused_flags_are_named():
    with pytest.raises(UnsupportedFeatureError, match=r"64 \(data overlay files\), 8192"):
        check_readable(1 | 64 | 8192)


def test_refused_flag_hint_names_supporting_lance():
    for flag, known_by in (
        (4096, "a Lance newer than 14.0.2"),
        (1 << 40, "a Lance newer than 14.0.2"),
    ):
        with pytest.raises(UnsupportedFeatureError) as raised:
            check_readable(flag)
        assert raised.value.hint.endswith(f"a client that supports them: {known_by}")


def test_documented_flag_table_matches_support():
    flags, _, others = flags_as_markdown().split("\n\n")
    rows = [line.split(" | ") for line in flags.splitlines()[2:-1]]
    for number, _, read, written, _ in rows:
        flag = int(number.removeprefix("| "))
        # These are never in the word of the readers.
        assert (read == "yes") == (flag in READABLE | {4096, 32768})
        assert (written == "yes") == (flag in WRITABLE)
    assert all(re.search(r"14\.0\.2", line) for line in others.splitlines()[2:])


@pytest.mark.parametrize("flag", [256, 1024, 16384, 65536])
def test_paired_flag_in_one_word_is_corrupt(flag):
    for words in ((flag, 0), (0, flag)):
        with pytest.raises(CorruptFileError, match=str(flag)):
            check_consistent(*words, None)
    check_consistent(flag, flag, None)


def test_non_reusable_field_ids_require_highest_id():
    check_consistent(0, 32768, 0)
    for words in ((32768, 32768, 3), (0, 32768, None), (0, 0, 3)):
        with pytest.raises(CorruptFileError, match="32768"):
            check_consistent(*words)


def flags(**changes):
    state = {
        "has_deletion_files": False,
        "stable_row_ids": False,
        "has_config": False,
        "has_base_paths": False,
    }
    return compute_flags(**(state | changes))


def test_flags_follow_table_state():
    assert flags() == (0, 0)
    assert flags(has_deletion_files=True) == (1, 1)
    assert flags(stable_row_ids=True) == (2, 2)
    assert flags(has_config=True) == (0, 8)
    assert flags(has_base_paths=True) == (16, 16)


def test_only_carried_flags_survive_new_version():
    kept = 128 | 256 | 16384
    assert flags(previous=(0xFFFF, 0xFFFF)) == (kept, kept)


@pytest.mark.interop
def test_pylance_refuses_same_flags(tmp_path):
    import lance
    import pyarrow as pa

    root = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": [1]}), root)
    (path,) = glob.glob(f"{root}/_versions/*.manifest")
    with open(path, "rb") as file:
        original = file.read()
    position = struct.unpack("<q", original[-16:-8])[0]

    def opens_in_pylance(reader, writer):
        message = table_pb2.Manifest.FromString(original[position + 4 : -16])
        message.reader_feature_flags, message.writer_feature_flags = reader, writer
        body = message.SerializeToString()
        with open(path, "wb") as file:
            file.write(original[:position] + struct.pack("<I", len(body)) + body)
            file.write(struct.pack("<q", position) + original[-8:])
        try:
            lance.dataset(root, session=lance.Session()).to_table()
        except Exception:  # noqa: BLE001  # pylance raises many kinds
            return False
        return True

    def opens_here(reader, writer):
        try:
            check_consistent(reader, writer, None)
            check_readable(reader)
        except LanceError:
            return False
        return True

    for bit in range(20):
        if 1 << bit == 2:  # "no row ids" is not about flags
            continue
        for words in ((1 << bit, 0), (0, 1 << bit), (1 << bit, 1 << bit)):
            # Opening alone makes pylance check the pairs of the writer word as well.
            assert opens_here(*words) == opens_in_pylance(*words), words
