"""Run the code blocks of a Markdown document, and compare what they print with what it shows.

Blocks of one document run in order and share their names.  ``python`` blocks are executed; each
statement of a ``sql`` block is one query.  A ``text`` block right behind one of them is what it
prints; without one, what is printed is not looked at.  ``bash`` blocks are left to the caller.
``/data`` in a block is a new folder.  A comment ``<!-- hidden`` … ``-->`` is Python that readers
need not see.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDS_PLUGIN = "<!-- needs the plugin -->"
# Examples with a function ``main`` of a session and a folder.
EXAMPLES = ("search_documents.py", "change_feed.py", "follow_a_table.py")
# What needs a package of its own, which may not be there.
WITH_DIGITS = "similar_images.py"
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$"
    r"|^<!-- hidden\n(?P<hidden>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code.

    Attributes:
        language: ``python``, ``sql``, ``bash``, …
        code: What it says.
        line: Number of its first line in the document.
        output: What the document says that it prints; None if it does not say.
    """

    language: str
    code: str
    line: int
    output: str | None = None


def documents() -> list[Path]:
    """All documents whose blocks are run."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    pages = [page for page in pages if page.parent.name != "format"]
    return [ROOT / "README.md", *pages, *(p for p in (ROOT / "CONTRIBUTING.md",) if p.exists())]


def blocks_of(text: str) -> list[Block]:
    """The blocks of a document, in order; those that show output are part of the one before."""
    found: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        if match["hidden"] is not None:
            found.append(Block("python", match["hidden"], line))
        elif match["language"] == "text" and found and not text[end : match.start()].strip():
            last = found.pop()
            found.append(Block(last.language, last.code, last.line, _dedented(match)))
        else:
            found.append(Block(match["language"], _dedented(match), line))
        end = match.end()
    return found


def _dedented(match: re.Match[str]) -> str:
    indent = match["indent"]
    lines = match["code"].splitlines()
    return "".join(line.removeprefix(indent) + "\n" for line in lines)


def run_document(path: Path, spark, folder: str) -> int:
    """Run all Python and SQL of a document; return how many blocks that were.

    Raises:
        AssertionError: A block printed something else than the document shows.
    """
    names = {"spark": spark, "__name__": "document"}
    count = 0
    for block in blocks_of(path.read_text()):
        if block.language not in ("python", "sql"):
            continue
        count += 1
        where = f"{path.name}:{block.line}"
        printed = io.StringIO()
        code = block.code.replace("/data", folder)
        mark(where)
        with contextlib.redirect_stdout(printed):
            if block.language == "python":
                # Line numbers of a traceback are those of the document.
                exec(compile("\n" * (block.line - 1) + code, where, "exec"), names)
            else:
                _run_sql(spark, code, shows=block.output is not None)
        sys.stdout.write(printed.getvalue())
        sys.stdout.flush()
        if block.output is not None:
            shown = printed.getvalue().replace(folder, "/data")
            assert shown.strip() == block.output.strip(), f"{where} prints:\n{shown}"
    return count


# Of Spark's own warnings in Java some depend on the machine's speed, so only those count that are
# about us; of Python's all but this one, which Spark always prints.
_NOT_OURS = "pandas >= 3.0.0"
_NO_ANSWER = re.compile(r"ERROR|Traceback|Exception|Broken|Warning: |\bWARN .*[Ll]ance")
_SHOWN_LINES = 5


def mark(where: str) -> None:
    """Prints in the output of all processes which block comes next."""
    for stream in (1, 2):
        os.write(stream, f"\n== {where}\n".encode())


def no_answers(printed: str) -> dict[str, str]:
    """What is printed besides answers: errors, traces and warnings, by the block they follow.

    Output of other processes may come a little later than the block that they work for.
    """
    found: dict[str, str] = {}
    where = "the start"
    lines = printed.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("== "):
            where = line.removeprefix("== ")
        elif _NO_ANSWER.search(line) and _NOT_OURS not in line:
            found.setdefault(where, "\n".join(lines[number : number + _SHOWN_LINES]))
    return found


def _run_sql(spark, code: str, *, shows: bool) -> None:
    lines = [line.split(" -- ")[0] for line in code.splitlines() if not line.startswith("--")]
    statements = [one.strip() for one in "\n".join(lines).split(";") if one.strip()]
    for number, statement in enumerate(statements):
        frame = spark.sql(statement)
        if shows and number == len(statements) - 1:
            frame.show(truncate=False)
        else:
            frame.collect()
