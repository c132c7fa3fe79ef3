"""The command line: every command, as text and as JSON, in this process and in one of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import set_to
from table_access import append, write_table

import pyspark_lance
from pyspark_lance.command_line.main import main
from pyspark_lance.command_line.picture import COLOURS, Group, draw_table
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.history.history import history
from pyspark_lance.table.refs import create_branch, set_tag
from pyspark_lance.table.version.snapshot import VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


def test_commands_load_pictures_only_to_draw_them():
    code = (
        "import sys, pyspark_lance.command_line.commands;"
        "print('pyspark_lance.command_line.picture' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.fixture
def path(tmp_path):
    """Five versions: rows come, go, and change."""
    path = str(tmp_path / "t")
    append(path, 0, 10)
    append(path, 10, 10)
    append(path, 20, 10)
    delete_rows(path, "id = 3")
    set_to(path, "id = 5", id=105)
    return path


def run(capsys, *arguments, code=0):
    assert main([str(one) for one in arguments]) == code
    return capsys.readouterr().out


def as_json(capsys, *arguments, code=0):
    out = run(capsys, *arguments, "--output", "json", code=code)
    return [json.loads(line) for line in out.splitlines()]


def test_info(capsys, path):
    (info,) = as_json(capsys, "info", path)
    assert (info["version"], info["num_rows"], info["num_fragments"]) == (5, 29, 4)
    assert "compact" in info["advice"][0]
    text = run(capsys, "info", path)
    assert "num_rows            29\n" in text
    assert "indices             -\n" in text  # none


def test_history(capsys, path):
    set_tag(Table(path), "kept", VersionSpec(version=2))
    rows = as_json(capsys, "history", path, "--limit", 4)
    assert [(row["version"], row["operation"], row["tags"]) for row in rows] == [
        (5, "Update", []),
        (4, "Delete", []),
        (3, "Append", []),
        (2, "Append", ["kept"]),
    ]
    lines = run(capsys, "history", path).splitlines()
    assert lines[0].split()[:3] == ["version", "timestamp", "operation"]
    assert len(lines) == 6


def test_fragments(capsys, path):
    rows = as_json(capsys, "fragments", path)
    assert [row["num_rows"] for row in rows] == [8, 10, 10, 1]
    assert rows[3]["max_last_updated_at"] == 5
    assert len(as_json(capsys, "fragments", path, "--version", 2)) == 2
    assert "files" not in run(capsys, "fragments", path)


def test_find_value_returns_exit_code(capsys, path):
    found = as_json(capsys, "find", path, "--column", "id", "--value", 3, code=1)
    assert [(one["kind"], one["num_values"], one["versions"]) for one in found] == [
        ("transaction", None, [4]),  # of the delete, and its copy in the manifest
        ("manifest", None, [4]),
        ("data", 1, [1, 2, 3, 4, 5]),
    ]
    text = run(capsys, "find", path, "--column", "id", "--value", 3, "--value", 4, code=1)
    assert text.splitlines()[0].split()[:3] == ["path", "kind", "num_values"]
    assert "3 with a value, 0 not searched completely" in text
    assert "0 with a value" in run(capsys, "find", path, "--column", "id", "--value", 777)
    lance.dataset(path).create_scalar_index("id", "BLOOMFILTER")
    found = as_json(capsys, "find", path, "--column", "id", "--value", 777)
    assert {one["kind"] for one in found} == {"not searched"}
    assert main(["find", path, "--column", "id", "--value", "x"]) == 2
    assert "is no value of the column 'id'" in capsys.readouterr().err


def test_verify_returns_exit_code(capsys, path):
    text = run(capsys, "verify", path, "--read-data")
    assert "version 5: 4 fragments, 4 files, 29 rows; 0 errors, 0 warnings" in text
    next(Path(path, "data").iterdir()).unlink()
    (finding,) = as_json(capsys, "verify", path, code=1)
    assert (finding["kind"], finding["severity"]) == ("missing_data_file", "error")
    assert "; 1 error, 0 warnings" in run(capsys, "verify", path, code=1)


def test_verify_of_missing_version_names_existing_ones(capsys, path, tmp_path):
    assert main(["verify", path, "--version", "7"]) == 2
    error = capsys.readouterr().err
    assert "no version 7" in error and "it has 5 versions, from 1 to 5" in error
    assert main(["verify", str(tmp_path / "none"), "--version", "7"]) == 2
    assert "LANCE_TABLE_NOT_FOUND" in capsys.readouterr().err


def test_compact_and_cleanup(capsys, path):
    (plan,) = as_json(capsys, "compact", path, "--dry-run")
    assert (plan["version"], plan["fragments_removed"]) == (None, 4)
    assert lance.dataset(path).version == 5
    (done,) = as_json(capsys, "compact", path)
    assert (done["version"], done["fragments_added"], done["num_rows"]) == (6, 1, 29)
    (plan,) = as_json(capsys, "cleanup", path, "--retain-versions", 2, "--dry-run")
    assert plan["versions"] == [1, 2, 3, 4]
    assert len(plan["paths"]) == sum(plan["files"].values())
    (done,) = as_json(capsys, "cleanup", path, "--older-than", "0s", "--retain-versions", 1)
    assert done["versions"] == [1, 2, 3, 4, 5]
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist())[-1] == 105


def test_cleanup_refuses_tagged_version_by_default(capsys, path):
    set_tag(Table(path), "kept", VersionSpec(version=1))
    assert main(["cleanup", path, "--before-version", "3"]) == 2
    assert "kept" in capsys.readouterr().err
    (done,) = as_json(capsys, "cleanup", path, "--before-version", 3, "--keep-tagged")
    assert done["versions"] == [2]


def test_changes(capsys, path):
    rows = as_json(capsys, "changes", path, 4)
    kinds = [(row["_change_type"], row["id"], row["_commit_version"]) for row in rows]
    assert sorted(kinds) == [
        ("delete", 3, 4),
        ("update_postimage", 105, 5),
        ("update_preimage", 5, 5),
    ]
    assert as_json(capsys, "changes", path, 4, 4, "--counts") == [
        {"version": 4, "num_inserted_rows": 0, "num_updated_rows": 0, "num_deleted_rows": 1}
    ]
    assert len(as_json(capsys, "changes", path, 1, "--mode", "netChanges")) == 29


def test_numbers_that_json_lacks_are_names(capsys, tmp_path):
    path = str(tmp_path / "t")
    nan, infinity = float("nan"), float("inf")
    values = {"x": [nan], "l": [[-infinity, 0.5]], "s": [{"y": infinity, "ü": nan}]}
    write_table(path, pa.table(values))
    out = run(capsys, "changes", path, 0, "--output", "json")
    row = json.loads(out, parse_constant=pytest.fail)
    assert (row["x"], row["l"]) == ("NaN", ["-Infinity", 0.5])
    assert row["s"] == {"y": "Infinity", "ü": "NaN"}


def test_changes_show_dates_beyond_python_range(capsys, tmp_path):
    path = str(tmp_path / "t")
    days = pa.array([2_932_897], pa.int32()).view(pa.date32())
    write_table(path, pa.table({"day": days}))
    (row,) = as_json(capsys, "changes", path, 1)
    assert row["day"] == "10000-01-01"
    assert "10000-01-01" in run(capsys, "changes", path, 1)


def test_tail_prints_versions_as_they_appear(capsys, path):
    rows = as_json(capsys, "tail", path, "--start", 2, "--count", 3)
    assert [row["version"] for row in rows] == [2, 3, 4]
    command = [sys.executable, "-m", "pyspark_lance", "tail", path, "--count", "2"]
    command += ["--interval", "0.05", "--output", "json", "--start", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        first = json.loads(process.stdout.readline())
        append(path, 40)
        second = json.loads(process.stdout.readline())
        assert process.wait(60) == 0
    assert (first["version"], second["version"]) == (5, 6)


INTERRUPTED = """
import signal, sys
from pyspark_lance.command_line.main import main

left = [signal.SIGINT]  # Once: threads may open other files while Python shuts down.

def interrupt(event, arguments):
    if event == "open" and str(arguments[0]).endswith(".lance") and left:
        signal.raise_signal(left.pop())

sys.addaudithook(interrupt)
sys.exit(main(sys.argv[1:]))
"""


def test_interrupted_verification_is_no_success(path):
    command = [sys.executable, "-c", INTERRUPTED, "verify", path, "--read-data"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_any_text_is_printed_in_any_encoding(tmp_path):
    append(str(tmp_path / "ü"), 0, 1)

    def printed(*options):
        command = [sys.executable, "-m", "pyspark_lance", "info", tmp_path / "ü", *options]
        environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert r"\xfc" in printed()
    assert json.loads(printed("--output", "json"))["location"] == str(tmp_path / "ü")


def test_closed_output_changes_no_exit_code(path):
    command = f"exec {sys.executable} -m pyspark_lance verify {path} >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_blobs_and_unusual_values_are_printed(capsys, tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"b": [b"\x00\xff"], "ä": ["<ö>"], "n": [None]}))
    (row,) = as_json(capsys, "changes", path, 1)
    assert (row["b"], row["ä"], row["n"]) == ("AP8=", "<ö>", None)
    assert "<ö>" in run(capsys, "changes", path, 1)


def test_plot_shows_versions_and_fragments(capsys, path, tmp_path):
    file = tmp_path / "out.svg"
    run(capsys, "info", path, "--plot", file)
    root = ElementTree.parse(file).getroot()
    tag = "{http://www.w3.org/2000/svg}"
    versions = [one for one in root.iter(f"{tag}text") if (one.text or "").startswith("v")]
    assert len(versions) == 5
    assert len(list(root.iter(f"{tag}g"))) == 1 + 2 + 3 + 3 + 4
    fills = [one.get("fill") for one in root.iter(f"{tag}rect")]
    # Fragments that were made by their version, one row that was updated, deleted rows.
    in_legend = 1
    assert fills.count("#3a9e5c") == 1 + 1 + 1 + in_legend
    assert fills.count("#3b78c2") == 1 + in_legend
    assert fills.count("#d9534f") == 1 + 1 + in_legend
    # Grey bands for fragments that stay, blue ones for rows that an update moves.
    bands = [one.get("fill") for one in root.iter(f"{tag}path")]
    assert set(bands) == {"#c9ced6", "#3b78c2"}


def test_plot_joins_many_small_fragments(capsys, tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": range(3000)}), max_rows_per_file=10)
    for start in range(20):
        append(path, 3000 + start)
    delete_rows(path, "id = 2500")
    drawing = draw_table(Table(path))
    boxes = [one for one in drawing.shapes if isinstance(one, Group)]
    assert len(boxes) < 22 * 110
    assert any("fragments, 0 to" in one.title for one in boxes)
    red = [box for one in boxes for box in one.boxes if box.colour == COLOURS["deleted"]]
    assert len(red) == 1
    assert red[0].width >= 2
    assert drawing.height < 1000


@pytest.mark.parametrize(
    "arguments",
    [["info", "nowhere"], ["changes", "PATH", "9"], ["fragments", "PATH", "--version", "9"],
     ["info", "PATH", "--storage", "x"]],
)  # fmt: skip
def test_failed_command_prints_one_error(capsys, path, arguments):
    assert main([path if one == "PATH" else one for one in arguments]) == 2
    assert capsys.readouterr().err.startswith("[LANCE_")


def test_misspelled_commands_print_usage(capsys, path):
    for arguments in (
        ["shrink", path],
        ["cleanup", path, "--older-than", "soon"],
        ["changes", path, "1", "--mode", "odd"],
    ):
        with pytest.raises(SystemExit) as error:
            main(arguments)
        assert error.value.code == 2
        output = capsys.readouterr().err
        assert "usage:" in output
        assert ("'soon' is not a duration: such as 14days" in output) == ("soon" in arguments)


def test_unknown_option_prints_usage_of_command(capsys, path):
    for option in ("--versoin", "--tag"):
        with pytest.raises(SystemExit):
            main(["fragments", path, option, "1"])
        output = capsys.readouterr().err
        assert output.startswith("usage: ")
        assert f"unrecognized arguments: {option} 1" in output
        assert "[--version N]" in output


def test_help_describes_every_option(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    for command in re.findall(r"^    ([a-z]+)\b", capsys.readouterr().out, re.MULTILINE):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        lines = capsys.readouterr().out.partition("options:\n")[2].splitlines()
        for line, below in zip(lines, [*lines[1:], ""], strict=True):
            if line.startswith("  -"):
                assert re.match(r"  -.*  \w", line) or below.startswith("      "), (command, line)


@pytest.mark.parametrize(
    ("called", "name"),
    [("/bin/pyspark-lance", "pyspark-lance"), ("/x/__main__.py", "python -m pyspark_lance")],
)
def test_missing_command_prints_help_with_program_name(capsys, monkeypatch, called, name):
    monkeypatch.setattr(sys, "argv", [called])
    assert main() == 2
    out, error = capsys.readouterr()
    assert (out, error.startswith(f"usage: {name} [-h]")) == ("", True), error
    assert "\n    quickstart\n" in error
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"{pyspark_lance.__version__}\n")


def test_quickstart_reports_missing_java(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(["quickstart"]) == 2
    assert "Spark needs Java 17 or newer, and no java was found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["info", "--plot", "none/out.svg"], "there is no folder 'none'"),
        (["info", "--plot", "out.png"], "name it 'out.svg'"),
        (["info", "--plot", "out"], "does not end with .svg"),
        (["changes", "99"], "would start at version 99, but the newest is 5"),
        (["changes", "4", "2"], "would start at version 4, after its end 2"),
        (["compact", "--materialize-deletions-threshold", "7"], "from 0 to 1, not 7"),
        (["compact", "--materialize-deletions-threshold", "nan"], "from 0 to 1, not nan"),
        (["info", "--branch", "trail"], "the table has no branch"),
        (["fragments", "--version", "77"], "no version 77"),
        (["fragments", "--version", "78"], "hint: it has 5 versions, from 1 to 5"),
    ],
)
def test_invalid_argument_prints_one_line_without_traceback(
    capsys, path, tmp_path, monkeypatch, arguments, complaint
):
    monkeypatch.chdir(tmp_path)
    command, *others = arguments
    assert main([command, path, *others]) == 2
    output = capsys.readouterr()
    assert (output.out, complaint in output.err) == ("", True), output.err
    assert "Traceback" not in output.err
    assert not list(Path().glob("out*"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["history", "--limit", "-1"],
        ["history", "--limit", "two"],
        ["verify", "--version", "0"],
        ["changes", "-1"],
        ["changes", "1", "0"],
        ["tail", "--interval", "-1"],
        ["tail", "--interval", "nan"],
        ["tail", "--count", "-2"],
        ["cleanup", "--retain-versions", "-1"],
        ["cleanup", "--before-version", "0"],
        ["compact", "--max-source-rows", "-5"],
    ],
)
def test_invalid_numbers_are_refused(capsys, path, arguments):
    command, *others = arguments
    with pytest.raises(SystemExit) as caught:
        main([command, path, *others])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "argument" in error
    assert any(repr(other) in error for other in others)


def test_unknown_branch_error_suggests_branches(capsys, path):
    create_branch(Table(path), "trial")
    for asked, hint in (("trail", "did you mean 'trial'?"), ("x", "there are: trial")):
        assert main(["info", path, "--branch", asked]) == 2
        assert hint in capsys.readouterr().err


def test_negative_history_limit_is_refused(path):
    with pytest.raises(InvalidInputError, match="must not be negative, as -1 is") as caught:
        history(Table(path), -1)
    assert path in str(caught.value)


def test_missing_table_error_suggests_nearby_path(capsys, path):
    assert main(["info", f"{path}s"]) == 2
    assert f"did you mean {path}?" in capsys.readouterr().err
