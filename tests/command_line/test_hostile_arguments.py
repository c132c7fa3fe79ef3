"""Names and values that mean something elsewhere: to shells, terminals, paths, URIs, and SQL."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from table_access import append, write_table

from pyspark_lance.command_line.main import main
from pyspark_lance.errors import InvalidInputError, LanceError
from pyspark_lance.table.refs import (
    branches_of,
    create_branch,
    remove_branch,
    remove_tag,
    set_tag,
    tags_of,
)
from pyspark_lance.table.version.table import Table

PARTS = st.sampled_from(
    ["../", "..", "/", "\\", "%2e%2e", "%2f", "%00", "\0", "'", '"', "`", "--", "-x", ";", "/*",
     "*/", "\n", "\r", "\x1b[31m", "\x07", "[/red]", "[bold]", "$(id)", "|", "&", " ", "~", "*",
     "?", "::", ":", "#", "=", "{0}", "%s", "\u202e", "\u0430", "\uff0f", "\u2028", "\udcff",
     "é", "e\u0301", "file://", "s3://", "a", "main", "tree", "_refs", "_versions"]
)  # fmt: skip
HOSTILE = st.lists(PARTS, min_size=1, max_size=5).map("".join)
MANY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
COMMANDS = ("info", "history", "fragments", "verify", "compact", "cleanup", "changes")


def run(arguments):
    """Exit code, and what was written to a terminal that knows UTF-8 only."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            code = main(arguments)
        except SystemExit as end:  # argparse's way to say that arguments are wrong
            code = end.code
    for stream in streams:
        stream.flush()
    return code, *(stream.buffer.getvalue().decode() for stream in streams)


def files_below(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path):
    """A table, and beside it a file that no command may touch."""
    append(str(tmp_path / "t"), 0, 5)
    append(str(tmp_path / "beside"), 0, 5)
    return tmp_path


@MANY
@given(command=st.sampled_from(COMMANDS), text=HOSTILE, place=st.sampled_from(range(5)))
@example(command="info", text="\udcff", place=1)  # no UTF-8, as a terminal may give it
@example(command="info", text="--", place=1)  # argparse drops it
@example(command="info", text="--", place=2)
@example(command="verify", text="--", place=4)
def test_hostile_arguments_never_raise_or_touch_other_tables(folder, command, text, place):
    before = files_below(folder)
    path = str(folder / "t")
    arguments = [
        [command, "--", f"{path}/{text}"],
        [command, path, f"--branch={text}"],
        [command, path, f"--storage={text}"],
        [command, path, text],
        [command, path, f"--version={text}"],
    ][place]
    code, out, error = run([*arguments, *(["0"] if command == "changes" and place != 3 else [])])
    assert code in (0, 2), error
    if code == 2:
        assert error.strip() and not out
    assert "Traceback" not in error
    assert not {sign for sign in out + error if ord(sign) < 32 and sign != "\n"}
    assert {path: data for path, data in files_below(folder).items() if path in before} == before


@MANY
@given(text=HOSTILE, place=st.sampled_from(range(2)))
@example(text="--", place=0)
@example(text="--", place=1)
@example(text="\udcff", place=1)
def test_hostile_values_to_find_never_raise(folder, text, place):
    path = str(folder / "t")
    column = ["--column=id", f"--value={text}"] if place else [f"--column={text}", "--value=1"]
    code, out, error = run(["find", path, *column])
    assert code in (0, 1, 2) and bool(error.strip()) == (code == 2), error
    assert "Traceback" not in error
    assert not {sign for sign in out + error if ord(sign) < 32 and sign != "\n"}


@MANY
@given(name=HOSTILE, value=HOSTILE)
def test_hostile_names_and_values_stay_on_one_line(tmp_path_factory, name, value):
    name, value = (text.replace("\udcff", "?") for text in (name, value))
    path = str(tmp_path_factory.mktemp("t") / "t")
    try:
        write_table(path, pa.table({name: [value], "id": [1]}))
    except InvalidInputError:
        return
    code, out, error = run(["changes", path, "0"])
    assert code == 0, error
    assert len(out.splitlines()) == 2
    assert not {sign for sign in out if ord(sign) < 32 and sign != "\n"}
    code, out, error = run(["changes", path, "0", "--output=json"])
    (line,) = out.split("\n")[:-1]
    assert json.loads(line)[name] == value


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_accept_non_utf8_paths_with_control_characters(tmp_path, command, output):
    path = str(tmp_path / "a\udcff\x1b[31m\n")
    append(path, 0, 5)
    code, out, error = run([command, path, *(["0"] if command == "changes" else []),
                            f"--output={output}"])  # fmt: skip
    assert code == 0 and "\x1b" not in out + error


@MANY
@given(name=HOSTILE)
def test_hostile_reference_names_are_exact_or_refused(folder, name):
    table = Table(str(folder / "t"))
    before = files_below(folder)
    try:
        set_tag(table, name)
    except LanceError:
        assert files_below(folder) == before
    else:
        assert [tag.name for tag in tags_of(table)] == [name]
        remove_tag(table, name)
    try:
        create_branch(table, name)
    except LanceError:
        pass
    else:
        assert [branch.name for branch in branches_of(table)] == [name]
        assert {path for path in files_below(folder) if path not in before} <= set(
            (folder / "t").rglob("*")
        )
        remove_branch(table, name)
    after = files_below(folder)
    assert {path: after.get(path) for path in before} == before
