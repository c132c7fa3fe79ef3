"""The mutants: one rule each that somebody could break without noticing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One text replaced by another.

    Attributes:
        name: What the broken package does.
        file: Below the package.
        old: Is there once.
        new: Takes its place.
        tests: Of which at least one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    # Commit
    Mutant(
        "a commit in doubt removes the files that it may need",
        "commit/commit_loop.py",
        "        if self._version.in_doubt is None:\n            self._remove_transaction()",
        "        if True:\n            self._remove_transaction()",
        ("tests/commit/test_gaps_and_doubt.py",),
    ),
    Mutant(
        "a transaction with unknown fields is judged as if it were understood",
        "commit/judge_newer.py",
        "if theirs.has_unknown_fields:",
        "if False:",
        ("tests/commit/test_gaps_and_doubt.py",),
    ),
    Mutant(
        "rows of a fragment that is gone may be changed",
        "commit/conflict.py",
        "    if common & removed_fragment_ids(theirs):\n        return _retry",
        "    if not common:\n        return _retry",
        ("tests/commit/test_conflict.py",),
    ),
    Mutant(
        "two commits may change the same row",
        "commit/rebase.py",
        "if deleted.intersects(mine):",
        "if deleted.is_empty and deleted.intersects(mine):",
        ("tests/commit/test_rebase.py",),
    ),
    Mutant(
        "rebased deletions forget those of the other commit",
        "commit/rebase.py",
        "merged[fragment_id] = deleted.union(mine)",
        "merged[fragment_id] = mine",
        ("tests/commit/test_rebase.py",),
    ),
    Mutant(
        "a moved row is created when it moves",
        "commit/assign_lineage.py",
        "find_created_at(moved, sources, version) if given is None",
        "np.full(len(moved), version, dtype=np.uint64) if given is None",
        ("tests/commit/test_assign_lineage.py",),
    ),
    Mutant(
        "updated rows keep their last-updated-at version",
        "commit/assign_lineage.py",
        "last_updated_at=before.replaced_at(offsets, version).to_bytes())",
        "last_updated_at=before.to_bytes())",
        ("tests/commit/test_assign_lineage.py",),
    ),
    Mutant(
        "a retry more than asked for",
        "commit/retries.py",
        "if self.attempts >= self._most:",
        "if self.attempts > self._most:",
        ("tests/commit/test_commit_loop.py",),
    ),
    Mutant(
        "work in doubt removes the data files that a version may name",
        "table/work/unit_of_work.py",
        "self._in_doubt = isinstance(error, StorageError)",
        "self._in_doubt = False",
        ("tests/table/test_unit_of_work.py",),
    ),
    Mutant(
        "an interrupted commit removes the data files that a version may name",
        "table/work/unit_of_work.py",
        "        self._in_doubt = True\n        try:",
        "        self._in_doubt = False\n        try:",
        ("tests/table/test_unit_of_work.py",),
    ),
    Mutant(
        "files that the version names are removed",
        "table/work/unit_of_work.py",
        "self._written - self._named",
        "self._written",
        ("tests/table/test_unit_of_work.py",),
    ),
    # Sequences of row ids and versions
    Mutant(
        "a tie of segment shapes goes to the bitmap",
        "format/u64_segment.py",
        "if holes_bytes <= min(bitmap_bytes, array_bytes):",
        "if holes_bytes < min(bitmap_bytes, array_bytes):",
        ("tests/format/test_u64_segment.py",),
    ),
    Mutant(
        "a tie of segment shapes goes to the array",
        "format/u64_segment.py",
        "if bitmap_bytes <= array_bytes:",
        "if bitmap_bytes < array_bytes:",
        ("tests/format/test_u64_segment.py",),
    ),
    Mutant(
        "runs of versions may be longer than any fragment",
        "format/version_sequence.py",
        "        if len(self) > MAX_ROWS:",
        "        if False:",
        ("tests/format/test_version_sequence.py",),
    ),
    # Change
    Mutant(
        "what is deleted is deleted again",
        "table/change/deletions.py",
        "    if before.intersects(gone):",
        "    if False:",
        ("tests/table/test_deletions.py",),
    ),
    Mutant(
        "rows beyond the end of a fragment are deleted",
        "table/change/deletions.py",
        "if largest is not None and largest >= fragment.physical_rows:",
        "if False:",
        ("tests/table/test_deletions.py",),
    ),
    Mutant(
        "a fragment of which every row is deleted stays",
        "table/change/deletions.py",
        "    if len(after) == fragment.physical_rows:",
        "    if len(after) > fragment.physical_rows:",
        ("tests/table/test_deletions.py",),
    ),
    Mutant(
        "null equals null in keys",
        "table/change/key_match.py",
        "            valid &= np.asarray(column.is_valid().to_numpy(zero_copy_only=False))",
        "            valid &= True",
        ("tests/table/test_key_match.py",),
    ),
    Mutant(
        "rows of a second file get the ids of the first",
        "table/change/moved_rows.py",
        "        ids = row_ids[start:end]",
        "        ids = row_ids[: end - start]",
        ("tests/table/test_deletions.py",),
    ),
    # Feed
    Mutant(
        "every step over lost versions that ends in a compaction is empty",
        "table/feed/version_changes.py",
        "    if after.version != before.version + 1:",
        "    if False:",
        ("tests/table/test_change_feed.py",),
    ),
    Mutant(
        "changes of lost versions are told with the version after them",
        "table/feed/change_task.py",
        "system_array(np.where(inside, updated, np.uint64(commit.version)))",
        "system_array(np.full(len(updated), commit.version, dtype=np.uint64))",
        ("tests/table/test_change_feed.py",),
    ),
    Mutant(
        "rows that are back are not inserted",
        "table/feed/version_changes.py",
        "        appeared += same.only_after()\n",
        "        same.only_after()\n",
        ("tests/table/test_change_feed.py",),
    ),
    # Scan
    Mutant(
        "a cast runs before the term that guards it",
        "table/scan/scan_task.py",
        "    first = tuple(t for t in terms if columns_of(t) <= lineage and not can_raise(t))\n"
        "    rest = tuple(t for t in terms if not (columns_of(t) <= lineage and not can_raise(t)))",
        "    first = tuple(t for t in terms if columns_of(t) <= lineage)\n"
        "    rest = tuple(t for t in terms if not columns_of(t) <= lineage)",
        ("tests/table/test_pruning_of_scans.py",),
    ),
    Mutant(
        "addresses beyond the end of a fragment are read",
        "table/scan/fragment_pruning.py",
        "len(inside := by_fragment[f.id][by_fragment[f.id] < f.physical_rows])",
        "len(inside := by_fragment[f.id])",
        ("tests/table/test_pruning_of_scans.py",),
    ),
    Mutant(
        "deleted rows are shown",
        "table/scan/scan_task.py",
        "            offsets = offsets[~vector.contains_each(offsets)]",
        "            pass",
        ("tests/table/test_pruning_of_scans.py",),
    ),
    Mutant(
        "fragments of which single rows are wanted are read as if all were",
        "table/scan/alike_runs.py",
        "        scan_slice.offsets is None\n        and scan_slice.start == 0\n",
        "        scan_slice.start == 0\n",
        ("tests/table/test_pruning_of_scans.py",),
    ),
    Mutant(
        "an unknown bound rules a fragment out",
        "predicate/prune.py",
        'may_be_true = sides.test(operator, "minimum", "maximum", unknown=True)',
        'may_be_true = sides.test(operator, "minimum", "maximum", unknown=False)',
        ("tests/predicate/test_pruning.py",),
    ),
    Mutant(
        "an index that covers a part of what was rewritten covers all of it",
        "format/fragment_reuse.py",
        "                if all(known):",
        "                if any(known):",
        ("tests/commit/test_next_manifest.py",),
    ),
    Mutant(
        "a note of where rows went takes the place of any other",
        "commit/index_rules.py",
        "    if (None if known is None else known.uuid) != replaces:",
        "    if False:",
        ("tests/commit/test_next_manifest.py",),
    ),
    Mutant(
        "lists of a file have any number of items",
        "table/rows/write_fragments.py",
        "            if counts[rows] > room:",
        "            if False:",
        ("tests/table/test_compaction.py",),
    ),
    # Those who follow
    Mutant(
        "the version that the next changes begin with is cleaned up under a consumer",
        "table/cleanup/cleanup.py",
        "for name, read in self.unread.items() if read <= version)",
        "for name, read in self.unread.items() if read < version)",
        ("tests/table/test_consumers.py",),
    ),
    Mutant(
        "a cleanup does not look who began to need an old version",
        "table/cleanup/cleanup.py",
        "if location.path not in needed]",
        "if True]",
        ("tests/table/test_cleanup.py",),
    ),
    Mutant(
        "a restored version is not looked for again",
        "commit/commit_loop.py",
        "            check_kept(self._store, find_version(self._store, version))",
        "            find_version(self._store, version)",
        ("tests/table/test_cleanup.py",),
    ),
    Mutant(
        "files of a restored version that another client removed are not missed",
        "commit/version_put.py",
        "        return not files <= there",
        "        return False",
        ("tests/proofs/test_proofs.py",),
    ),
    Mutant(
        "a cleanup believes a listing that is late",
        "table/cleanup/removable_files.py",
        "return listed + versions_not_listed(",
        "return listed or versions_not_listed(",
        ("tests/table/test_late_listings.py",),
    ),
    Mutant(
        "a cleanup that was held up for long goes on",
        "metafile/cleanup_marks.py",
        "if asleep_s > _MAY_NOT_RENEW_S:",
        "if False:",
        ("tests/table/test_cleanup.py",),
    ),
    Mutant(
        "the mark of a dead cleanup counts for ever",
        "metafile/cleanup_marks.py",
        "    return 0 < info.modified_ns < time.time_ns()",
        "    return 0 > info.modified_ns > time.time_ns()",
        ("tests/table/test_cleanup.py",),
    ),
    Mutant(
        "a branch goes on with the first version of another fork",
        "table/upkeep/branches.py",
        "if transaction is None or transaction.operation != clone:",
        "if transaction is None:",
        ("tests/table/test_tags_and_branches.py",),
    ),
    Mutant(
        "a branch that is removed while it is made is a branch",
        "table/upkeep/branches.py",
        "        if not store.exists(first.path):",
        "        if False:",
        ("tests/table/test_tags_and_branches.py",),
    ),
    Mutant(
        "a replica that is restored takes its position with it",
        "commit/application_versions.py",
        "        if key.startswith(CONFIG_PREFIX + _CHANGES_OF):\n            continue\n",
        "",
        ("tests/table/test_applied_changes.py",),
    ),
    Mutant(
        "a consumer is not moved back for a stream that is behind",
        "spark/source/stream_reader.py",
        "        if not start.is_in_snapshot:\n            self._keep_after(start)",
        "        if not start.is_in_snapshot:\n            self._keep_after(end)",
        ("tests/spark/test_stream_consumers.py",),
    ),
)
