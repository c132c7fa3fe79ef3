"""Invalid tables, and the kind of error that a reader must raise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.steps import History

from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.metafile.manifest_file import encode_manifest, list_versions, read_manifest
from pyspark_lance.table.version.table import Table

_OVERLAYS = 64
_NEVER_GIVEN = 1 << 40
_FOOTER = 16


@dataclass(frozen=True)
class WrongTable:
    """A damage to a valid table, and the expected error."""

    damage: Callable[[Path], None]  # Called with the table's folder.
    error: str  # One of ``not found``, ``corrupt`` and ``unsupported``.
    version: int = 2  # The version to read.


def damaged_history() -> History:
    """Return the history of the valid table, whose version 2 has a deletion file."""
    return History("delete", 2)


def _newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)


def _manifest(folder: Path) -> Path:
    store = Table(str(folder)).store()
    return folder / next(one for one in list_versions(store) if one.version == 2).path


def _cut_manifest(folder: Path) -> None:
    path = _manifest(folder)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _overwrite_magic(folder: Path) -> None:
    path = _manifest(folder)
    path.write_bytes(path.read_bytes()[:-4] + b"PAR1")


def _remove(pattern: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for path in folder.glob(pattern):
            path.unlink()

    return damage


def _cut_data_files(folder: Path) -> None:
    for path in folder.glob("data/*"):
        path.write_bytes(path.read_bytes()[:-_FOOTER])


def _newer_data_files(folder: Path) -> None:
    """Change the file version, which precedes the magic in the last eight bytes."""
    for path in folder.glob("data/*"):
        path.write_bytes(path.read_bytes()[:-8] + b"\x02\x00\x09\x00LANC")


def _with(change: Callable[[Manifest], Manifest]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        store = Table(str(folder)).store()
        location = next(one for one in list_versions(store) if one.version == 2)
        file = read_manifest(store, location)
        store.put(location.path, encode_manifest(change(file.manifest), file.indices, None))

    return damage


def _flagged(flag: int) -> Callable[[Manifest], Manifest]:
    return lambda manifest: dataclasses.replace(
        manifest,
        reader_flags=manifest.reader_flags | flag,
        writer_flags=manifest.writer_flags | flag,
    )


def _with_too_few_row_ids(manifest: Manifest) -> Manifest:
    first, *others = manifest.fragments
    first = dataclasses.replace(first, row_ids=RowIdSequence.consecutive(0, 1).to_bytes())
    return dataclasses.replace(manifest, fragments=Fragments.of([first, *others]))


def _as_it_is(_folder: Path) -> None:
    """Change nothing, for requests that are invalid themselves."""


WRONG_TABLES: Mapping[str, WrongTable] = {
    "wrong-manifest-cut": WrongTable(_cut_manifest, "corrupt"),
    "wrong-manifest-magic": WrongTable(_overwrite_magic, "corrupt"),
    "wrong-data-file-missing": WrongTable(_remove("data/*"), "corrupt"),
    "wrong-data-file-cut": WrongTable(_cut_data_files, "corrupt"),
    "wrong-deletion-file-missing": WrongTable(_remove("_deletions/*"), "corrupt"),
    "wrong-row-ids-too-few": WrongTable(_with(_with_too_few_row_ids), "corrupt"),
    "wrong-flag-overlays": WrongTable(_with(_flagged(_OVERLAYS)), "unsupported"),
    "wrong-flag-unknown": WrongTable(_with(_flagged(_NEVER_GIVEN)), "unsupported"),
    "wrong-data-file-version": WrongTable(_newer_data_files, "unsupported"),
    "wrong-no-table": WrongTable(_remove("**/*.manifest"), "not found"),
    "wrong-no-such-version": WrongTable(_as_it_is, "not found", version=99),
}
