"""A table that pylance alone writes: the steps of a history once more, by another hand.

Steps are given as what they are, where pylance has a call for it.  What it has none for (merges
of several clauses, replaceWhere) is given as the rows that go and the rows that come, in one
``merge_insert`` on a column that is different in every row; so the row ids and versions are
pylance's own in any case.

Both tables make the same number of versions, so that numbers can be compared: pylance makes one
where this package makes none and more than one where one will do, and the slower one changes a
key of the config.
"""

from __future__ import annotations

import lance
import pyarrow as pa

UID = "uid"
"""A column of every table here: different in every row that was ever inserted."""


def open_table(path: str) -> lance.LanceDataset:
    """The newest version, without what other steps left in a cache."""
    return lance.dataset(path, session=lance.Session(0, 0))


def catch_up(path: str, version: int) -> None:
    """Make versions that change no row, until there is one of this number."""
    dataset = lance.dataset(path)
    while dataset.version < version:
        dataset.update_config({"filled": str(dataset.version)})
        dataset = lance.dataset(path)


class PylanceReplay:
    """The copy.

    Args:
        path: Where it is to be.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def version(self) -> int:
        return lance.dataset(self.path).version

    def create(self, table: pa.Table, per_file: int, file_version: str) -> None:
        lance.write_dataset(
            table, self.path, enable_stable_row_ids=True, data_storage_version=file_version,
            max_rows_per_file=per_file,
        )  # fmt: skip

    def append(self, table: pa.Table, per_file: int) -> None:
        lance.write_dataset(table, self.path, mode="append", max_rows_per_file=per_file)

    def overwrite(self, table: pa.Table) -> None:
        lance.write_dataset(table, self.path, mode="overwrite")

    def delete(self, condition: str) -> None:
        lance.dataset(self.path).delete(condition)

    def update(self, condition: str, values: dict[str, str]) -> None:
        lance.dataset(self.path).update(values, where=condition)

    def merge(self, source: pa.Table, key: str, clauses) -> None:
        """A merge of clauses that pylance has; see ``merges``."""
        builder = lance.dataset(self.path).merge_insert(key)
        for match, action, condition in clauses:
            if match == "matched" and action == "update":
                builder.when_matched_update_all(condition)
            elif match == "matched":
                builder.when_matched_delete()
            elif match == "not matched":
                builder.when_not_matched_insert_all()
            else:
                builder.when_not_matched_by_source_delete(condition)
        builder.execute(source)

    def change(self, came: pa.Table, gone: list[int], *, updates: bool) -> None:
        """Rows with these uids go; rows come, or take the place of those of the same uid."""
        if not came.num_rows:
            self.delete(_among(gone))
            return
        builder = lance.dataset(self.path).merge_insert(UID).when_not_matched_insert_all()
        if updates:
            builder.when_matched_update_all()
        if gone:
            builder.when_not_matched_by_source_delete(_among(gone))
        builder.execute(came)

    def add_nulls(self, name: str, kind: pa.DataType) -> None:
        lance.dataset(self.path).add_columns(pa.schema([(name, kind)]))

    def add_values(self, name: str, expression: str) -> None:
        lance.dataset(self.path).add_columns({name: expression})

    def drop(self, name: str) -> None:
        lance.dataset(self.path).drop_columns([name])

    def rename(self, name: str, new: str) -> None:
        lance.dataset(self.path).alter_columns({"path": name, "name": new})

    def widen(self, name: str, kind: pa.DataType) -> None:
        lance.dataset(self.path).alter_columns({"path": name, "data_type": kind})

    def compact(self, size: int) -> None:
        compact(self.path, size)

    def restore(self, version: int) -> None:
        lance.dataset(self.path, version=version).restore()


def compact(path: str, size: int) -> None:
    """Compaction by pylance, that takes rows of any deleted share."""
    open_table(path).optimize.compact_files(
        target_rows_per_fragment=size, materialize_deletions_threshold=0.0
    )


def _among(uids: list[int]) -> str:
    return f"{UID} IN ({', '.join(map(str, uids))})"
