"""The cases: a table as bytes, and requests with their expected responses."""

from __future__ import annotations

import dataclasses
import io
import json
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.model import Answer
from conformance.steps import BRANCH, HISTORIES, History
from conformance.table_writer import write_history
from conformance.wrong_tables import WRONG_TABLES, damaged_history

from pyspark_lance.metafile.manifest_file import encode_manifest, list_versions, read_manifest
from pyspark_lance.table.version.table import Table

SEED = 1
RANDOM_HISTORIES = 3

# Replaces absolute base paths in the stored bytes.
_ANYWHERE = "/table"


@dataclass(frozen=True)
class Question:
    """A request without its table, and the expected response."""

    request: Mapping[str, Any]
    answer: Answer


@dataclass(frozen=True)
class Case:
    """One table."""

    name: str
    archive: bytes  # The files of its folder as a ZIP file.
    questions: Sequence[Question]

    def unpack(self, folder: Path) -> str:
        """Extract the table to a folder and return its path."""
        path = folder / self.name
        path.mkdir()
        with zipfile.ZipFile(io.BytesIO(self.archive)) as archive:
            archive.extractall(path)
        if (path / "tree").exists():
            _set_base_paths(path, str(path))
        return str(path)


def case_names() -> list[str]:
    """Return the names of all cases."""
    numbers = range(1, RANDOM_HISTORIES + 1)
    return [*HISTORIES, *(f"random-{number}" for number in numbers), *WRONG_TABLES]


def build_questions(name: str, seed: int) -> list[Question]:
    """Return the requests of a case, with the responses of the model."""
    if name in WRONG_TABLES:
        wrong = WRONG_TABLES[name]
        return [Question({"ask": "rows", "version": wrong.version}, {"error": wrong.error})]
    history = History(name, seed)
    branch = {} if history.branch is None else {"branch": history.branch}
    model = history.model
    newest, oldest = model.version, min(model.versions)
    questions = [Question({"ask": "versions", **branch}, {"versions": sorted(model.versions)})]
    questions += [
        Question({"ask": "rows", "version": version, **branch}, model.answer_rows(version))
        # Rows without ids have no lineage.
        for version in range(max(1, oldest - 1), newest + 1)
        if version not in model.without_ids and (branch == {} or version >= oldest)
    ]
    questions += [
        Question(
            {"ask": "changes", "start": start, "end": end, **branch},
            model.answer_changes(start, end),
        )
        for start in range(1 if oldest == 1 else oldest, newest + 1)
        for end in range(start, newest + 1)
        if not branch or start > oldest
    ]
    return questions


def make_case(name: str, seed: int) -> Case:
    """Write the table of a case, and compute the expected responses with the model."""
    with tempfile.TemporaryDirectory(prefix="lance-conformance-") as folder:
        path = Path(folder, "table")
        if name in WRONG_TABLES:
            write_history(str(path), damaged_history().steps)
            WRONG_TABLES[name].damage(path)
        else:
            write_history(str(path), History(name, seed).steps)
        if (path / "tree" / BRANCH).exists():
            _set_base_paths(path, _ANYWHERE)
        return Case(name, _packed(path), build_questions(name, seed))


def write_cases(folder: Path, seed: int) -> None:
    """Generate the whole set: an archive and a JSON file for each case."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in case_names():
        case = make_case(name, seed)
        (folder / f"{name}.zip").write_bytes(case.archive)
        (folder / f"{name}.json").write_text(as_json(case.questions), encoding="utf-8")


def read_cases(folder: Path) -> Iterator[Case]:
    """Read the cases in a folder."""
    for path in sorted(folder.glob("*.json")):
        questions = [Question(**one) for one in json.loads(path.read_text(encoding="utf-8"))]
        yield Case(path.stem, path.with_suffix(".zip").read_bytes(), questions)


def as_json(questions: Sequence[Question]) -> str:
    """Serialize requests, one per line."""
    lines = (json.dumps(dataclasses.asdict(one), ensure_ascii=False) for one in questions)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _packed(path: Path) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(path.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(path))
    return output.getvalue()


def _set_base_paths(path: Path, root: str) -> None:
    """Set the base path of the main branch in the versions of the branch."""
    store = Table(str(path), branch=BRANCH).store()
    for location in list_versions(store):
        file = read_manifest(store, location)
        bases = tuple(dataclasses.replace(one, path=root) for one in file.manifest.base_paths)
        manifest = dataclasses.replace(file.manifest, base_paths=bases)
        store.put(location.path, encode_manifest(manifest, file.indices, None))
