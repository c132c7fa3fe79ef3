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


_SHARE_OF_INTERLEAVINGS = (
    "tests/table/work/test_interleavings.py"
    "::test_a_share_of_all_interleavings_ends_as_an_order_or_as_a_conflict[drop_column]"
)

MUTANTS = (
    # What indices leave
    Mutant(
        "bitmaps of tables with stable row ids are taken to name addresses",
        "table/index/segments.py",
        "BITMAP: {0: True, 1: False},",
        "BITMAP: {0: False, 1: False},",
        ("tests/table/index/test_scalar_indices.py",),
    ),
    Mutant(
        "an index is asked for nulls of a field whose struct may be null",
        "table/index/lookups.py",
        "if is_inside_struct and is_true_of_null(",
        "if not is_inside_struct and is_true_of_null(",
        ("tests/table/index/test_scalar_indices.py",),
    ),
    Mutant(
        "rows that moved in a compaction are looked for where they were by indices",
        "table/index/lookups.py",
        "addresses = moved_addresses(names, _moves(lookups, segment))",
        "addresses = names",
        ("tests/table/index/test_scalar_indices.py",),
    ),
    Mutant(
        "one part of OR that an index knows is all of it",
        "predicate/single_column.py",
        "        if rows is None:\n            return None\n",
        "        if rows is None:\n            continue\n",
        ("tests/table/index/test_scalar_indices.py",),
    ),
    Mutant(
        "pages of a B-tree may hold other values than they should",
        "table/index/btree.py",
        "        if not is_right:",
        "        if not is_right and False:",
        ("tests/table/index/test_scalar_indices.py",),
    ),
    Mutant(
        "a NaN with a sign does not hide what a page of a B-tree holds",
        "table/index/btree.py",
        "    if pa.types.is_floating(minimum.type):\n        # One",
        "    if False:\n        # One",
        ("tests/table/index/test_scalar_indices.py",),
    ),
    Mutant(
        "zones without a filter for a value are all that bloom filters leave",
        "table/index/bloom.py",
        "found[places] |= _is_in(blocks, number)",
        "found[places] |= ~_is_in(blocks, number)",
        ("tests/table/index/test_scalar_indices.py",),
    ),
    # What is listed and read
    Mutant(
        "manifests that are gone when they are read say nothing about newer ones",
        "table/version/removable_files.py",
        "if len(read) == before + len(new):",
        "if len(read) <= before + len(new):",
        ("tests/table/cleanup/test_lists_beside_cleanup.py",),
    ),
    Mutant(
        "what is wrong with a version that others remove meanwhile is told",
        "table/verify/verify.py",
        "if findings and not store.exists(location.path):",
        "if not findings and not store.exists(location.path):",
        ("tests/table/cleanup/test_lists_beside_cleanup.py",),
    ),
    Mutant(
        "a column that comes back for one of its name and id is taken for the same",
        "table/feed/change_feed.py",
        "or brings_back(self.before, self.after)",
        "or self.before is self.after",
        ("tests/table/feed/test_restored_columns.py",),
    ),
    # Streams
    Mutant(
        "a batch of a stream shows a column that was dropped as the one that came after it",
        "table/feed/batch_tasks.py",
        " and _stand_since(followed, last.version, versions) <= last.version:",
        ":",
        ("tests/table/feed/test_streams_of_random_histories.py",),
    ),
    # Network mounts
    Mutant(
        "a stale handle is an error the first time",
        "store/stale_handles.py",
        "if error.errno != errno.ESTALE:",
        "if error.errno != errno.EAGAIN:",
        ("tests/store/test_stale_handles.py", "tests/table/test_stale_handles_of_tables.py"),
    ),
    Mutant(
        "a handle that stays stale says that nothing is there",
        "store/local_store.py",
        "_NOT_THERE = (FileNotFoundError,",
        "_NOT_THERE = (OSError,",
        ("tests/store/test_stale_handles.py", "tests/table/test_stale_handles_of_tables.py"),
    ),
    # Names and properties
    Mutant(
        "a path inside of a table is not told that it is",
        "table/version/near_tables.py",
        "if _is_table(parent):",
        "if not parent:",
        ("tests/table/version/test_near_tables.py",),
    ),
    Mutant(
        "write options among the properties of a new table are kept in silence",
        "spark/options/option_table.py",
        "        elif option is not None:\n            raise _no_property",
        "        elif not word:\n            raise _no_property",
        ("tests/spark/test_options.py::test_properties_that_say_what_a_new_table_is_are_options",),
    ),
    Mutant(
        "properties that say how a column is stored say nothing",
        "spark/options/parse_options.py",
        "split_column_properties(self.table_properties, names)",
        "split_column_properties(self.table_properties, ())",
        (
            "tests/spark/test_options.py::test_properties_of_columns_are_options_once_the_columns_are_known",
        ),
    ),
    Mutant(
        "a table that is there takes properties that nobody heeds",
        "spark/options/option_table.py",
        "if is_of_column or _option_of_writes(word) is not None:",
        "if _option_of_writes(word) is not None:",
        (
            "tests/spark/test_options.py::test_names_of_options_are_no_properties_of_a_table_that_is_there",
        ),
    ),
    # Commit
    Mutant(
        "writers of one machine do not take turns",
        "commit/commit_loop.py",
        "with turn(store, VERSIONS, TURN_S, meanwhile=work.write_ahead) as is_alone:",
        "with contextlib.nullcontext(False) as is_alone:",
        ("tests/commit/test_turns_of_writers.py",),
    ),
    Mutant(
        "work that met a conflict is overtaken again and again",
        "table/work/unit_of_work.py",
        "turns = work.turn_to_change(min(work.retries.left_s, _AGAIN_S))",
        "turns = nullcontext()",
        ("tests/commit/test_turns_of_writers.py",),
    ),
    Mutant(
        "who waits for a turn waits on as long as anything happens",
        "store/turns.py",
        "if now - began >= _MOST_PATIENCE * patience_s:",
        "if now - began >= 20 * _MOST_PATIENCE * patience_s:",
        ("tests/store/test_turns.py",),
    ),
    Mutant(
        "who has waited in vain does not wait again, though others get on",
        "store/turns.py",
        "if time.monotonic() < until and change in (_ANY_CHANGE, _last_change(descriptor)):",
        "if time.monotonic() < until:",
        ("tests/store/test_turns.py",),
    ),
    Mutant(
        "who gives up waiting gets the lock later and keeps it",
        "store/turns.py",
        "            if self._is_left:\n                _let_go(self._descriptor)\n",
        "",
        ("tests/store/test_turns.py",),
    ),
    Mutant(
        "works that will meet a conflict do all twice",
        "table/work/unit_of_work.py",
        "if self._expects_conflicts():",
        "if False:",
        ("tests/commit/test_turns_of_writers.py",),
    ),
    Mutant(
        "a deletion file that another one replaced is taken for known",
        "metafile/deletion_file.py",
        "key = store.uri, path, store.stat(path).identity, file, physical_rows, may_exceed",
        "key = store.uri, path, file, physical_rows, may_exceed",
        ("tests/metafile/test_deletion_file.py",),
    ),
    Mutant(
        "writers that others passed over wait ever longer",
        "commit/retries.py",
        "_SLOTS = (4, 16, 64, 32, 16, 8, 4, 2, 1)",
        "_SLOTS = (4, 16, 64)",
        ("tests/commit/test_turns_of_writers.py",),
    ),
    Mutant(
        "the newest of many versions is taken for the oldest",
        "metafile/version_names.py",
        "first = heapq.nsmallest(_FIRST_NAMES, names)",
        "first = heapq.nlargest(_FIRST_NAMES, names)",
        ("tests/metafile/test_version_names.py",),
    ),
    Mutant(
        "a version that was the newest a moment ago is so now",
        "metafile/manifest_file.py",
        "return None if _stat(store, location.version + 1, location.scheme) else location",
        "return location",
        ("tests/metafile/test_version_names.py",),
    ),
    Mutant(
        "a version of another table under the same path was seen",
        "metafile/manifest_file.py",
        "if now is None or now.identity != location.identity:",
        "if now is None:",
        ("tests/metafile/test_version_names.py",),
    ),
    Mutant(
        "a folder with manifests of both schemes is a table",
        "metafile/version_names.py",
        "        check_one_scheme(store, parsed)\n",
        "",
        ("tests/metafile/test_version_names.py",),
    ),
    Mutant(
        "a manifest under the name of another version tells what that one did",
        "metafile/manifest_file.py",
        "        _check_version(sections.version, location, where)\n",
        "",
        ("tests/commit/test_newer_versions.py",),
    ),
    Mutant(
        "a commit in doubt removes the files that it may need",
        "commit/commit_loop.py",
        "        if self._version.in_doubt is None:\n            self._remove_transaction()",
        "        if True:\n            self._remove_transaction()",
        ("tests/commit/test_gaps_and_doubt.py",),
    ),
    Mutant(
        "a transaction with unknown fields is judged as if it were understood",
        "commit/conflict_check.py",
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
        "self._in_doubt = isinstance(error, StorageError | TableGoneError)",
        "self._in_doubt = False",
        ("tests/table/work/test_unit_of_work.py",),
    ),
    Mutant(
        "work for a table that is gone removes files that a late put would name",
        "table/work/unit_of_work.py",
        "isinstance(error, StorageError | TableGoneError)",
        "isinstance(error, StorageError)",
        ("tests/table/work/test_unit_of_work.py",),
    ),
    Mutant(
        "replaceWhere opens the table a second time",
        "table/write/write_table.py",
        "        change = plan_replacement(newest, ",
        "        change = plan_replacement(Snapshot.open(plan.request.table), ",
        ("tests/table/work/test_overtaken_commits.py",),
    ),
    Mutant(
        "a branch is forked off a table that was made anew meanwhile",
        "table/refs/branches.py",
        "    if BaseVersion.of(there.manifest) != BaseVersion.of(snapshot.manifest):",
        "    if False:",
        ("tests/table/work/test_overtaken_commits.py",),
    ),
    Mutant(
        "a version of a table that was made anew is restored by its number",
        "table/work/metadata_commits.py",
        "        if BaseVersion.of(there.manifest) != BaseVersion.of(old.manifest):",
        "        if False:",
        ("tests/table/work/test_overtaken_commits.py",),
    ),
    Mutant(
        "a tag that was moved since it was read is not found",
        "table/version/snapshot.py",
        "                if spec == before:\n                    raise",
        "                raise",
        ("tests/table/work/test_overtaken_commits.py",),
    ),
    Mutant(
        "a listing is believed whose newest version is gone",
        "metafile/manifest_file.py",
        "        first = [_there(store, one) for one in itertools.islice(located, 1)]",
        "        first = [one for one in itertools.islice(located, 1) if one is not None]",
        ("tests/table/work/test_overtaken_commits.py",),
    ),
    Mutant(
        "a version that others have followed at the last moment is taken back",
        "commit/version_put.py",
        "        if newest and newest[0].version > number:  # somebody",
        "        if False:  # somebody",
        ("tests/commit/test_gaps_and_doubt.py",),
    ),
    Mutant(
        "a version that is gone since it was listed is taken for lost",
        "commit/version_put.py",
        "        if holder is None and not newer:\n            return False",
        "        if False:\n            return False",
        ("tests/commit/test_gaps_and_doubt.py",),
    ),
    Mutant(
        "a restored version is in doubt when two others follow and clean up",
        "commit/commit_outcome.py",
        "            return _is_restored(before, ours, newest)",
        "            return False",
        ("tests/table/work/test_overtaken_commits.py",),
    ),
    Mutant(
        "an interrupted commit removes the data files that a version may name",
        "table/work/unit_of_work.py",
        "        self._in_doubt = True\n        try:",
        "        self._in_doubt = False\n        try:",
        ("tests/table/work/test_unit_of_work.py",),
    ),
    Mutant(
        "files of an index that the version names are removed",
        "table/work/unit_of_work.py",
        "                if isinstance(operation, CreateIndex):",
        "                if False:",
        ("tests/table/work/test_unit_of_work.py",),
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
        ("tests/table/change/test_deletions.py",),
    ),
    Mutant(
        "rows beyond the end of a fragment are deleted",
        "table/change/deletions.py",
        "if largest is not None and largest >= fragment.physical_rows:",
        "if False:",
        ("tests/table/change/test_deletions.py",),
    ),
    Mutant(
        "a fragment of which every row is deleted stays",
        "table/change/deletions.py",
        "    if len(after) == fragment.physical_rows:",
        "    if len(after) > fragment.physical_rows:",
        ("tests/table/change/test_deletions.py",),
    ),
    Mutant(
        "null equals null in keys",
        "table/change/key_match.py",
        "            valid &= plain_numbers(column.is_valid())",
        "            valid &= True",
        ("tests/table/change/test_key_match.py",),
    ),
    Mutant(
        "rows of a second file get the ids of the first",
        "table/change/moved_rows.py",
        "        ids = row_ids[start:end]",
        "        ids = row_ids[: end - start]",
        ("tests/table/change/test_deletions.py",),
    ),
    Mutant(
        "lists become fixed-size lists by pyarrow, which may end the process",
        "table/rows/arrow_casts.py",
        "    if pa.types.is_fixed_size_list(target):\n        return _fixed_size",
        "    if pa.types.is_fixed_size_list(target):\n        return array.cast(target)\n"
        "        return _fixed_size",
        ("tests/table/rows/test_arrow_casts.py",),
    ),
    Mutant(
        "a value before a slice, or below a null, is cast too",
        "table/rows/arrow_casts.py",
        "    return cast_parts(array, target, lambda",
        "    return array.cast(target)\n    return cast_parts(array, target, lambda",
        ("tests/table/rows/test_conform.py",),
    ),
    Mutant(
        "no values at all are halved for ever",
        "table/feed/cast_values.py",
        "        if len(values) <= 1:",
        "        if len(values) == 1:",
        ("tests/table/rows/test_arrow_casts.py",),
    ),
    # Feed
    Mutant(
        "every step over lost versions that ends in a compaction is empty",
        "table/feed/version_changes.py",
        "    if after.version != before.version + 1:",
        "    if False:",
        ("tests/table/feed/test_change_feed.py",),
    ),
    Mutant(
        "changes of lost versions are told with the version after them",
        "table/feed/change_task.py",
        "system_array(np.where(inside, updated, np.uint64(commit.version)))",
        "system_array(np.full(len(updated), commit.version, dtype=np.uint64))",
        ("tests/table/feed/test_change_feed.py",),
    ),
    Mutant(
        "rows that are back are not inserted",
        "table/feed/version_changes.py",
        "        appeared += same.only_after()\n",
        "        same.only_after()\n",
        ("tests/table/feed/test_change_feed.py",),
    ),
    Mutant(
        "a version that comes back twice comes back with other columns",
        "table/feed/column_history.py",
        "        self._versions[version] = columns\n        self._came_back[version] = after\n",
        "",
        ("tests/table/feed/test_restored_columns.py",),
    ),
    Mutant(
        "rows that get a column back are not counted",
        "table/feed/change_feed.py",
        "                len(rows) if holds_any(rows.after, come) else len(rows.updated)",
        "                len(rows.updated)",
        ("tests/table/feed/test_restored_columns.py",),
    ),
    Mutant(
        "a stream plans from places that its table does not have",
        "table/feed/batch_tasks.py",
        "    followed.check_not_replaced(locations, start, end)\n",
        "",
        ("tests/table/feed/test_streams.py",),
    ),
    # Scan
    Mutant(
        "the plan of a scan brings rows however many bytes they are",
        "spark/source/few_rows.py",
        "            most_bytes -= stream.size\n",
        "",
        ("tests/spark/test_few_rows.py",),
    ),
    Mutant(
        "all rows are read where a plan is asked for, to find a few",
        "spark/source/few_rows.py",
        "    if is_tested and left.rows",
        "    if is_tested and not left.rows",
        ("tests/spark/test_few_rows.py",),
    ),
    Mutant(
        "partitions that the user chose are lost where rows are few",
        "spark/source/few_rows.py",
        " or read.fragments_per_partition is not None",
        "",
        ("tests/spark/test_few_rows.py::test_who_chooses_partitions_gets_them",),
    ),
    Mutant(
        "a cast runs before the term that guards it",
        "table/scan/scan_task.py",
        "    first = tuple(t for t in terms if columns_of(t) <= lineage and not can_raise(t))\n"
        "    rest = tuple(t for t in terms if not (columns_of(t) <= lineage and not can_raise(t)))",
        "    first = tuple(t for t in terms if columns_of(t) <= lineage)\n"
        "    rest = tuple(t for t in terms if not columns_of(t) <= lineage)",
        ("tests/table/scan/test_pruning_of_scans.py",),
    ),
    Mutant(
        "addresses beyond the end of a fragment are read",
        "table/scan/fragment_pruning.py",
        "np.unique(inside[inside < rows])",
        "np.unique(inside)",
        ("tests/table/scan/test_pruning_of_scans.py",),
    ),
    Mutant(
        "deleted rows are shown",
        "table/scan/scan_task.py",
        "            offsets = offsets[~vector.contains_each(offsets)]",
        "            pass",
        ("tests/table/scan/test_pruning_of_scans.py",),
    ),
    Mutant(
        "fragments of which single rows are wanted are read as if all were",
        "table/scan/coalesced_fragments.py",
        "        scan_slice.offsets is None\n        and scan_slice.start == 0\n",
        "        scan_slice.start == 0\n",
        ("tests/table/scan/test_pruning_of_scans.py",),
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
        "an index does not name what it still has of compacted fragments",
        "commit/index_rules.py",
        "            now = _following(index, moves, bitmap) if stable_row_ids else BitMap(bitmap)",
        "            now = _following(index, moves, bitmap) if stable_row_ids else bitmap & there",
        ("tests/commit/test_next_manifest.py", "tests/table/index/test_indices_after_changes.py"),
    ),
    Mutant(
        "an index with row ids does not name the fragments of rows that were deleted",
        "commit/index_rules.py",
        "        if not knows_rows or all(fragment.deletion_file is None for fragment in old):",
        "        if True:",
        ("tests/commit/test_next_manifest.py", "tests/table/index/test_indices_after_changes.py"),
    ),
    Mutant(
        "lists of a file have any number of items",
        "table/rows/write_fragments.py",
        "            if counts[rows] > room:",
        "            if False:",
        ("tests/table/compaction/test_compaction.py",),
    ),
    Mutant(
        "deleted rows with strings that are not UTF-8 keep a table from being compacted",
        "table/rows/fragment_reader.py",
        "live[is_of_fragment] = ~vector.contains_each(offsets)",
        "live[is_of_fragment] = True",
        ("tests/table/rows/test_text_that_is_not_utf8.py",),
    ),
    Mutant(
        "strings that are not UTF-8 are written",
        "table/rows/conform.py",
        "    if not holds_invalid_text(array):\n        return",
        "    if array is not None:\n        return",
        ("tests/table/rows/test_text_that_is_not_utf8.py",),
    ),
    Mutant(
        "compaction copies strings that are not UTF-8",
        "table/compaction/compaction_task.py",
        "        checks_text=True,\n",
        "",
        ("tests/table/rows/test_text_that_is_not_utf8.py",),
    ),
    Mutant(
        "verify passes over strings that are not UTF-8",
        "table/verify/verify.py",
        "stable_row_ids=stable, checks_text=True)",
        "stable_row_ids=stable)",
        ("tests/table/rows/test_text_that_is_not_utf8.py",),
    ),
    # Those who follow
    Mutant(
        "the version that the next changes begin with is cleaned up under a consumer",
        "table/cleanup/cleanup.py",
        "for name, read in self.unread.items() if read <= version)",
        "for name, read in self.unread.items() if read < version)",
        ("tests/table/refs/test_consumers.py",),
    ),
    Mutant(
        "a cleanup does not look who began to need an old version",
        "table/cleanup/cleanup.py",
        "if location.path not in needed]",
        "if True]",
        ("tests/table/cleanup/test_cleanup.py",),
    ),
    Mutant(
        "a restored version is not looked for again",
        "commit/commit_loop.py",
        "            check_kept(self._store, find_version(self._store, version))",
        "            find_version(self._store, version)",
        ("tests/table/cleanup/test_cleanup.py",),
    ),
    Mutant(
        "files of a restored version that another client removed are not missed",
        "commit/version_put.py",
        "        return not files <= there",
        "        return False",
        ("tests/proofs/test_proofs.py",),
    ),
    Mutant(
        "a mark that has no room for its content says nothing",
        "metafile/cleanup_marks.py",
        "        marks += [info for info",
        "        [info for info",
        ("tests/table/cleanup/test_cleanup_on_full_disks.py",),
    ),
    Mutant(
        "a cleanup of a full disk has no room for its mark",
        "metafile/cleanup_marks.py",
        "            if not is_out_of_room(error):\n                raise\n",
        "            raise\n",
        ("tests/table/cleanup/test_cleanup_on_full_disks.py",),
    ),
    Mutant(
        "a cleanup of a full disk does not begin with what nobody needs",
        "table/cleanup/cleanup.py",
        "        _remove(store, _needed_by_nobody(store, survey, files, policy, now_ns), None)",
        "        pass",
        ("tests/table/cleanup/test_cleanup_on_full_disks.py",),
    ),
    Mutant(
        "a cleanup removes what somebody writes into a branch that is being made",
        "table/cleanup/cleanup.py",
        "    if policy.delete_unverified and not file.is_of_branch:",
        "    if policy.delete_unverified:",
        ("tests/table/cleanup/test_cleanup_on_full_disks.py",),
    ),
    Mutant(
        "a cleanup believes a listing that is late",
        "table/version/removable_files.py",
        "return listed + versions_not_listed(",
        "return listed or versions_not_listed(",
        ("tests/table/version/test_late_listings.py",),
    ),
    Mutant(
        "a cleanup that was held up for long goes on",
        "metafile/cleanup_marks.py",
        "if asleep_s > _MAY_NOT_RENEW_S:",
        "if False:",
        ("tests/table/cleanup/test_cleanup.py",),
    ),
    Mutant(
        "the mark of a dead cleanup counts for ever",
        "metafile/cleanup_marks.py",
        "    return 0 < info.modified_ns < time.time_ns()",
        "    return 0 > info.modified_ns > time.time_ns()",
        ("tests/table/cleanup/test_cleanup.py",),
    ),
    Mutant(
        "a branch goes on with the first version of another fork",
        "table/refs/branches.py",
        "if transaction is None or transaction.operation != clone:",
        "if transaction is None:",
        ("tests/table/refs/test_tags_and_branches.py",),
    ),
    Mutant(
        "a branch that is removed while it is made is a branch",
        "table/refs/branches.py",
        "        if not store.exists(first.path):",
        "        if False:",
        ("tests/table/refs/test_tags_and_branches.py",),
    ),
    Mutant(
        "a replica that is restored takes its position with it",
        "commit/application_versions.py",
        "        if key.startswith(CONFIG_PREFIX + _CHANGES_OF):\n            continue\n",
        "",
        ("tests/table/change/test_applied_changes.py",),
    ),
    Mutant(
        "a table that is held at a version is changed all the same",
        "spark/api/lance_table.py",
        "        if self._at != LATEST:\n            raise",
        "        if False:\n            raise",
        ("tests/spark/test_public_calls.py",),
    ),
    Mutant(
        "an error about a data file does not say of which table",
        "datafile/file_metadata.py",
        '        return f"{self.store.uri}/{self.path}"',
        "        return self.path",
        ("tests/table/verify/test_places_in_errors.py",),
    ),
    Mutant(
        "an index file that was cut is in order",
        "table/verify/verify.py",
        '        return "" if noted == size else f"has {size} bytes, not {noted}"',
        '        return ""',
        ("tests/table/verify/test_verify.py",),
    ),
    Mutant(
        "a column is ambiguous however it is spelled if another differs by case only",
        "format/column_names.py",
        "        if name in self._known:\n            return name",
        "        if False:\n            return name",
        ("tests/format/test_column_names.py",),
    ),
    Mutant(
        "a new column means the one that differs by case, though that is given, too",
        "format/column_names.py",
        "        if spelled is None or (spelled in exact and spelled != name):",
        "        if spelled is None:",
        ("tests/table/columns/test_column_histories.py",),
    ),
    Mutant(
        "structs are in the same order if one has the first members of the other",
        "format/column_names.py",
        "    if len(left) != len(right):",
        "    if len(left) < len(right):",
        ("tests/format/test_column_names.py",),
    ),
    Mutant(
        "parentheses without end are all read",
        "predicate/tokens.py",
        "            if depth > MAX_PARENTHESES:",
        "            if False:",
        ("tests/predicate/test_text.py",),
    ),
    Mutant(
        "an error of a change does not say of which table",
        "spark/options/spellings.py",
        "        if not error.where:",
        "        if False:",
        ("tests/spark/test_public_calls.py",),
    ),
    Mutant(
        "an option that a method has no use for is passed over",
        "spark/options/spellings.py",
        "        if option is not None and option in heeded:",
        "        if option is not None:",
        ("tests/spark/test_public_calls.py",),
    ),
    Mutant(
        "a consumer is not moved back for a stream that is behind",
        "spark/source/stream_reader.py",
        "        if not start.is_in_snapshot:\n            self._keep_after(start)",
        "        if not start.is_in_snapshot:\n            self._keep_after(end)",
        ("tests/spark/test_stream_consumers.py",),
    ),
    Mutant(
        "a merge asks Spark for a column that may not be there, which is printed",
        "spark/jobs/semi_join.py",
        "        column = names.named(pair.source)\n",
        "        try:\n"
        "            column = source.select(pair.source_column()).schema.fields[0]\n"
        "        except Exception:\n"
        "            column = None\n",
        ("tests/spark/test_source_names.py",),
    ),
    Mutant(
        "a version that came too late counts as made where others did the same",
        "commit/version_put.py",
        "self._work(wanted, was_put and not is_late)",
        "self._work(wanted, was_put)",
        (_SHARE_OF_INTERLEAVINGS,),
    ),
    # Nearest rows
    Mutant(
        "rows that are equally near are taken as they come",
        "table/nearest/found_rows.py",
        "np.lexsort((every.row_id, every.distance, every.query))",
        "np.lexsort((every.distance, every.query))",
        ("tests/table/nearest/test_nearest.py",),
    ),
    Mutant(
        "rounding of products leaves out rows that are near",
        "table/nearest/exact_search.py",
        "float(4 * width + 64)",
        "float(0 * width)",
        ("tests/table/nearest/test_nearest.py",),
    ),
    Mutant(
        "rows without a vector are compared",
        "table/nearest/search_task.py",
        "            if has_vector is not None:",
        "            if has_vector is None:",
        ("tests/table/nearest/test_nearest.py",),
    ),
    Mutant(
        "numbers that are too large for products are passed over",
        "table/nearest/exact_search.py",
        "self._add_unusual(block.at(~usual))",
        "pass",
        ("tests/table/nearest/test_nearest.py",),
    ),
    Mutant(
        "of rows that are equal only one is found",
        "table/nearest/exact_search.py",
        "kept[order[place < k]] = True",
        "kept[order[place < 1]] = True",
        ("tests/table/nearest/test_nearest.py",),
    ),
    Mutant(
        "distances of an index are compared with those of vectors",
        "table/nearest/search_plan.py",
        "(request.refine_factor is not None or not is_covered)",
        "request.refine_factor is not None",
        ("tests/table/nearest/test_vector_indices.py",),
    ),
    Mutant(
        "the first partition is thought to hold enough rows",
        "table/nearest/ivf_search.py",
        "while self._task.nprobes is None:",
        "while False:",
        ("tests/table/nearest/test_vector_indices.py",),
    ),
    Mutant(
        "rows that an index still holds are found though they are deleted",
        "table/nearest/segment_rows.py",
        "is_live[own] = ~deleted.contains_each(places[own])",
        "pass",
        ("tests/table/nearest/test_vector_indices.py",),
    ),
    Mutant(
        "an index finds rows that the condition is not true of",
        "table/nearest/segment_rows.py",
        "is_live = is_live & self._matching.contains(addresses)",
        "pass",
        ("tests/table/nearest/test_vector_indices.py",),
    ),
    Mutant(
        "without nprobes one partition is looked at first",
        "table/nearest/ivf_search.py",
        "return np.minimum(counts, distances.shape[1])",
        "return np.ones_like(counts)",
        ("tests/table/nearest/test_vector_indices.py",),
    ),
    # Rows or columns
    Mutant(
        "columns are rewritten though an index answers for them",
        "table/change/choose_rewrite.py",
        "    if _is_indexed(snapshot, names, everything if callable(changed) else changed):",
        "    if False:",
        ("tests/table/change/test_choose_rewrite.py",),
    ),
    Mutant(
        "rows that change are counted however small the table is",
        "table/change/choose_rewrite.py",
        "rewrite_cost(snapshot, names, everything).rows_s < WORTH_COUNTING_S",
        "rewrite_cost(snapshot, names, everything).rows_s < 0",
        ("tests/table/change/test_choose_rewrite.py",),
    ),
    # Rules of commits, feeds, streams, pruning, compaction and indices
    Mutant(
        "a version is put on top of another table",
        "commit/version_put.py",
        "        if is_same is False:\n            return table_was_replaced",
        "        if False:\n            return table_was_replaced",
        ("tests/commit/test_gaps_and_doubt.py",),
    ),
    Mutant(
        "a version that was removed half read is shown again with the one after it",
        "table/feed/followed_table.py",
        "lost = sorted({start.version, reached} - {0} - there)",
        "lost = sorted({start.version} - {0} - there)",
        (
            "tests/table/feed/test_streams.py::test_a_version_that_was_removed_half_read_is_an_error_or_passed_over",
        ),
    ),
    Mutant(
        "a batch whose versions were removed before it ran again fails for ever",
        "table/feed/batch_tasks.py",
        "        if end.version < start.version:\n            return ()\n",
        "",
        (
            "tests/table/feed/test_streams.py::test_a_batch_whose_versions_were_removed_before_it_ran_again_is_empty",
        ),
    ),
    Mutant(
        "bins that nobody changed are rewritten again beside one that somebody did",
        "table/compaction/compact.py",
        "if all(there.get(fragment.id) == fragment for",
        "if all(fragment.id in there for",
        (
            "tests/table/compaction/test_compaction.py::test_a_bin_that_others_changed_is_planned_again_and_the_rest_is_kept",
        ),
    ),
    Mutant(
        "a merge misses a row that was moved and then deleted",
        "commit/conflict_check.py",
        "if changed and (was_compacted or reads.misses(latest, changed)):",
        "if changed and reads.misses(latest, changed):",
        (
            "tests/table/change/test_concurrent_changes.py::test_a_merge_inserts_a_row_that_was_moved_and_then_deleted_meanwhile",
        ),
    ),
    Mutant(
        "a merge inserts a row again that was inserted and then moved",
        "commit/conflict_check.py",
        "if files - known or reads.meets(latest, fragments):",
        "if reads.meets(latest, fragments):",
        (
            "tests/table/change/test_concurrent_changes.py::test_a_merge_finds_a_row_that_was_inserted_and_then_moved_meanwhile",
        ),
    ),
    Mutant(
        "rows whose file was replaced are not looked at",
        "commit/conflict_check.py",
        "            case DataReplacement():\n                in_place |= changed_fragment_ids(operation)\n",  # noqa: E501
        "",
        (
            "tests/table/change/test_concurrent_changes.py::test_a_delete_sees_rows_whose_file_was_replaced_meanwhile",
        ),
    ),
    Mutant(
        "parts of which nothing is known have as few nulls as the last zone",
        "predicate/prune.py",
        "            nullable | unknown,",
        "            nullable,",
        (
            "tests/table/index/test_zone_maps.py::test_nulls_that_an_index_without_any_does_not_know_are_read",
        ),
    ),
    Mutant(
        "rows of a fragment that was rewritten are deleted",
        "commit/conflict.py",
        "        (retry_on_common_fragment, (Rewrite, DataReplacement)),\n        (retry, (Merge,)),\n        (give_up, (Overwrite, Restore)),\n    ),\n    Update:",  # noqa: E501
        "        (fine, (Rewrite, DataReplacement)),\n        (retry, (Merge,)),\n        (give_up, (Overwrite, Restore)),\n    ),\n    Update:",  # noqa: E501
        ("tests/commit/test_conflict_interop.py",),
    ),
    Mutant(
        "an append beside a merge brings a unique key twice",
        "commit/conflict.py",
        "    if ours.inserted_rows is not None and theirs.fragments:",
        "    if ours.inserted_rows is not None and not theirs.fragments:",
        ("tests/commit/test_conflict.py",),
    ),
    Mutant(
        "an update beside a merge brings a unique key twice",
        "commit/conflict.py",
        "    if theirs.new_fragments and may_insert_same_keys(ours, theirs):",
        "    if False:",
        ("tests/commit/test_conflict.py",),
    ),
    Mutant(
        "rows that change their key are not among those that a merge brings",
        "table/change/moved_rows.py",
        "        self._moved_keys = self._new_keys if changes_keys else NewKeys(())",
        "        self._moved_keys = NewKeys(())",
        ("tests/table/change/test_inserted_keys.py",),
    ),
    Mutant(
        "keys of rows that are deleted now, and may be back, are not known",
        "table/change/known_keys.py",
        "    for rows in run(replace(task, slices=slices), lambda _fragment: None):",
        "    for rows in run(replace(task, slices=slices)):",
        ("tests/table/change/test_known_keys.py",),
    ),
    Mutant(
        "rows that a merge of other conditions inserted are told from ours by their keys",
        "table/change/merge.py",
        "            keys_decide=by_key and settles_keys(clauses),",
        "            keys_decide=settles_keys(clauses),",
        ("tests/table/change/test_inserted_keys.py",),
    ),
    Mutant(
        "a merge that changes not all of its matches does not look for those that others took",
        "table/change/merge.py",
        "            losses_too=inserts and not settles_matches(clauses),",
        "            losses_too=False,",
        ("tests/table/change/test_concurrent_changes.py",),
    ),
    Mutant(
        "a fragment is removed with rows that others changed",
        "commit/conflict.py",
        "    if common & removed_fragment_ids(ours):",
        "    if False:",
        ("tests/commit/test_conflict.py",),
    ),
    Mutant(
        "columns are rewritten beside rows that others changed",
        "commit/conflict.py",
        "    if rewrites_columns(ours) or rewrites_columns(theirs):",
        "    if rewrites_columns(theirs):",
        ("tests/commit/test_conflict.py",),
    ),
    Mutant(
        "columns that old writers rewrote are taken for rows",
        "commit/conflict.py",
        "        operation.update_mode == 1 or bool(operation.fields_modified)\n",
        "        operation.update_mode == 1\n",
        ("tests/commit/test_conflict.py",),
    ),
    Mutant(
        "a column that was replaced loses what is appended",
        "commit/conflict.py",
        "    if any(field >= 0 for field in written - present):",
        "    if any(field >= 0 for field in present - written):",
        ("tests/commit/test_conflict_interop.py",),
    ),
    Mutant(
        "an index without a bitmap covers nothing",
        "commit/conflict.py",
        "if wanted and (covered is None or any(",
        "if wanted and covered is not None and (any(",
        ("tests/commit/test_conflict.py",),
    ),
    Mutant(
        "an index that is dropped beside its refresh comes back",
        "commit/conflict.py",
        "    if dropped:\n",
        "    if False:\n",
        ("tests/table/index_build/test_index_building.py",),
    ),
    Mutant(
        "an index that is dropped keeps what was added to it",
        "commit/conflict.py",
        "    if kept:\n",
        "    if False:\n",
        ("tests/table/index_build/test_index_building.py",),
    ),
    Mutant(
        "a map is replaced without the keys of others",
        "commit/metadata_updates.py",
        "    if ours.replace or theirs.replace:\n        return True",
        "    if ours.replace and theirs.replace:\n        return True",
        ("tests/commit/test_conflict_interop.py",),
    ),
    Mutant(
        "all base paths without a name have one name",
        "commit/conflict.py",
        "same_name = mine.name is not None and mine.name == other.name",
        "same_name = mine.name == other.name",
        ("tests/commit/test_conflict.py",),
    ),
    Mutant(
        "deletions move onto other data files",
        "commit/rebase.py",
        "if fragment.files != planned.files or fragment.physical_rows != planned.physical_rows:",
        "if fragment.physical_rows != planned.physical_rows:",
        ("tests/commit/test_rebase.py",),
    ),
    Mutant(
        "a fragment without a row stays",
        "commit/rebase.py",
        "if len(vector) >= now[i].physical_rows}",
        "if len(vector) > now[i].physical_rows}",
        ("tests/commit/test_commit_loop.py",),
    ),
    Mutant(
        "an index knows a field that reads another column of its file",
        "commit/fragment_changes.py",
        "        field: (file.path, file.base_id, column)",
        "        field: (file.path, file.base_id, 0)",
        ("tests/commit/test_next_manifest.py",),
    ),
    Mutant(
        "an index knows rows that come together with some that it knows",
        "commit/index_rules.py",
        "        if knows_rows and before.issubset(bitmap):",
        "        if knows_rows and not before.isdisjoint(bitmap):",
        ("tests/commit/test_next_manifest.py",),
    ),
    Mutant(
        "an index without a bitmap stays when rows change",
        "commit/index_rules.py",
        "    if bitmap is None:\n        return None\n",
        "    if bitmap is None:\n        return index\n",
        ("tests/commit/test_next_manifest.py",),
    ),
    Mutant(
        "every index follows rows that move",
        "commit/index_rules.py",
        "        knows_rows = index.details_type in _KINDS_WITH_ROW_IDS",
        "        knows_rows = True",
        ("tests/commit/test_next_manifest.py",),
    ),
    Mutant(
        "new rows come before those that moved",
        "commit/assign_lineage.py",
        "np.concatenate([moved, new])).to_bytes()",
        "np.concatenate([new, moved])).to_bytes()",
        ("tests/commit/test_assign_lineage.py",),
    ),
    Mutant(
        "row ids of moved rows are counted as new",
        "commit/assign_lineage.py",
        "    after = next_row_id + num_rows - num_moved\n",
        "    after = next_row_id + num_rows\n",
        ("tests/commit/test_assign_lineage.py",),
    ),
    Mutant(
        "a restore gives row ids again",
        "commit/apply_operation.py",
        "draft.next_row_id = max(old.next_row_id, now.next_row_id)",
        "draft.next_row_id = old.next_row_id",
        ("tests/commit/test_next_manifest.py",),
    ),
    Mutant(
        "a restore gives fragment ids again",
        "commit/apply_operation.py",
        "draft.max_fragment_id = max(highest, default=None)",
        "draft.max_fragment_id = min(highest, default=None)",
        ("tests/commit/test_next_manifest.py",),
    ),
    Mutant(
        "rows that others deleted come back",
        "commit/apply_operation.py",
        "if fragment.num_deleted_rows < before.num_deleted_rows:",
        "if False:",
        ("tests/commit/test_next_manifest.py",),
    ),
    Mutant(
        "an index of lists knows items that were replaced",
        "commit/apply_operation.py",
        "    if operation.update_mode == 1:\n        for",
        "    if False:\n        for",
        ("tests/commit/test_next_manifest.py",),
    ),
    Mutant(
        "the last batch of an application is committed again",
        "commit/application_versions.py",
        "return recorded is not None and wanted.version <= recorded",
        "return recorded is not None and wanted.version < recorded",
        ("tests/table/work/test_idempotent_writes.py",),
    ),
    Mutant(
        "a restore forgets batches that came after older ones",
        "commit/application_versions.py",
        "(older is None or older < recorded)",
        "(older is None)",
        ("tests/commit/test_commit_loop.py",),
    ),
    Mutant(
        "a merge takes a fragment id that others reserved",
        "commit/apply_operation.py",
        "            if 0 < fragment.id <= (draft.base.max_fragment_id or 0):",
        "            if False:",
        ("tests/commit/test_next_manifest.py",),
    ),
    Mutant(
        "a range that reaches over others is not seen behind them",
        "table/feed/version_changes.py",
        "np.maximum.accumulate(high[order])",
        "high[order]",
        (
            "tests/table/feed/test_change_feed.py::test_a_range_that_reaches_over_others_meets_what_is_behind_them",
        ),
    ),
    Mutant(
        "net changes are taken in the wrong order of time",
        "table/feed/net_changes.py",
        '    order = np.argsort(band.row_ids, kind="stable")\n',
        '    order = np.argsort(band.row_ids, kind="stable")[::-1]\n',
        ("tests/table/feed/test_net_changes.py",),
    ),
    Mutant(
        "changes whose rows change again pass through",
        "table/feed/net_changes.py",
        "is_alone[order] = is_new & np.concatenate((is_new[1:], [True]))",
        "is_alone[order] = is_new",
        ("tests/table/feed/test_net_changes.py",),
    ),
    Mutant(
        "the end of a window that is left out is shown",
        "table/feed/change_window.py",
        "    end = ending.version - ending.is_exclusive\n    if end > newest",
        "    end = ending.version\n    if end > newest",
        ("tests/table/feed/test_change_feed.py::test_versions_can_be_left_out_at_both_ends",),
    ),
    Mutant(
        "a version committed right at the start of a window is left out",
        "table/feed/change_window.py",
        "newest_at(store, starting.timestamp_ns - 1, locations)",
        "newest_at(store, starting.timestamp_ns, locations)",
        ("tests/table/feed/test_change_feed.py::test_windows_by_time",),
    ),
    Mutant(
        "a batch goes on behind its end",
        "table/feed/stream_steps.py",
        "start, end = max(first - done, 0), count if last is None else min(count, last - done)",
        "start, end = max(first - done, 0), count",
        ("tests/table/feed/test_streams.py",),
    ),
    Mutant(
        "a batch may have no row",
        "table/feed/stream_steps.py",
        "            fit = max(fit, min(rows, 1))",
        "            fit = max(fit, 0)",
        ("tests/table/feed/test_streams.py",),
    ),
    Mutant(
        "a batch counts rows that the one before had",
        "table/feed/stream_steps.py",
        "            left = done + count - max(first, done)",
        "            left = count",
        ("tests/table/feed/test_streams.py",),
    ),
    Mutant(
        "a version that comes late into a gap is shown within a step",
        "table/feed/followed_table.py",
        "return start.version < version <= final and not is_inside",
        "return start.version < version <= final",
        (
            "tests/table/feed/test_streams.py::test_a_version_that_comes_late_into_a_gap_is_not_shown_within_a_step",
        ),
    ),
    Mutant(
        "net changes are cut within a step",
        "table/feed/batch_ends.py",
        "return not versions.have_other_columns and not is_net",
        "return not versions.have_other_columns",
        ("tests/table/feed/test_streams.py",),
    ),
    Mutant(
        "a batch ends before the first row of a step",
        "table/feed/batch_ends.py",
        "return end if place == 0 else StreamOffset(",
        "return StreamOffset(",
        ("tests/table/feed/test_streams.py",),
    ),
    Mutant(
        "parts with some nulls have no value",
        "predicate/prune.py",
        "        is_value = np.broadcast_to(np.logical_not(bounds.all_null), self._num_parts)",
        "        is_value = np.broadcast_to(np.logical_not(bounds.nullable), self._num_parts)",
        ("tests/predicate/test_pruning.py",),
    ),
    Mutant(
        "two nulls are different to a null-safe comparison",
        "predicate/prune.py",
        'if sides is None or (operator == "<=>" and sides.may_both_be_null):',
        "if sides is None:",
        ("tests/predicate/test_pruning.py",),
    ),
    Mutant(
        "a long list of constants has no gaps",
        "predicate/prune.py",
        "answers = _all_of([above, below]) | np.uint8(_FALSE)",
        "answers = _all_of([above, below])",
        ("tests/predicate/test_pruning.py",),
    ),
    Mutant(
        "what is not in a list with a null is surely not",
        "predicate/prune.py",
        "        return _unknown_for_false(answers) if has_null else answers",
        "        return answers",
        ("tests/predicate/test_pruning.py",),
    ),
    Mutant(
        "a part holds only what a list names one of",
        "predicate/prune.py",
        "every_value = (inside > 0) & ((inside - 1).astype(np.uint64) == width)",
        "every_value = (inside > 0)",
        ("tests/predicate/test_pruning.py",),
    ),
    Mutant(
        "all floats are exact integers",
        "predicate/prune.py",
        "return Fraction(value) if abs(value) < limit else None",
        "return Fraction(value)",
        ("tests/predicate/test_pruning.py",),
    ),
    Mutant(
        "row ids beyond bigint are negative",
        "predicate/prune.py",
        "            too_large = values > np.uint64(_INT64.max)",
        "            too_large = np.zeros(len(values), np.bool_)",
        ("tests/predicate/test_pruning.py",),
    ),
    Mutant(
        "parts without values have some",
        "predicate/prune.py",
        "    bits = np.where(all_null, 0, bits)\n",
        "",
        ("tests/predicate/test_pruning.py",),
    ),
    Mutant(
        "one side of OR names all row ids",
        "predicate/prune.py",
        "if len(known) == len(parts) else None",
        "if known else None",
        ("tests/predicate/test_pruning.py",),
    ),
    Mutant(
        "a share of deleted rows at the threshold is a reason to rewrite",
        "table/compaction/compaction_plan.py",
        "fragment.num_deleted_rows / fragment.physical_rows > threshold",
        "fragment.num_deleted_rows / fragment.physical_rows >= threshold",
        ("tests/table/compaction/test_compaction.py",),
    ),
    Mutant(
        "fragments that different indices cover share a bin",
        "table/compaction/compaction_plan.py",
        "        if covering != previous:",
        "        if previous is None:",
        ("tests/table/compaction/test_compaction.py",),
    ),
    Mutant(
        "a bin is cut though too few rows are left",
        "table/compaction/compaction_plan.py",
        "if rows >= target_rows and left >= target_rows:",
        "if rows >= target_rows:",
        ("tests/table/compaction/test_compaction.py",),
    ),
    Mutant(
        "a limit below the first bin stops all work",
        "table/compaction/compaction_plan.py",
        "        if taken and too_many:",
        "        if too_many:",
        ("tests/table/compaction/test_compaction.py",),
    ),
    Mutant(
        "reserved fragment ids begin one too early",
        "table/compaction/compact.py",
        "(reserved.manifest.max_fragment_id or 0) - count + 1)",
        "(reserved.manifest.max_fragment_id or 0) - count)",
        ("tests/table/compaction/test_deferred_remap.py",),
    ),
    Mutant(
        "a note is forgotten that one index has yet to follow",
        "table/compaction/reuse_index.py",
        "        if not all(_has_followed(index, version) for index in concerned)",
        "        if not any(_has_followed(index, version) for index in concerned)",
        (
            "tests/table/compaction/test_deferred_remap.py::test_compactions_that_one_index_has_not_followed_are_kept",
        ),
    ),
    Mutant(
        "bins that landed in the end count as conflicting",
        "table/compaction/compact.py",
        "        conflictingBins=after.conflictingBins,",
        "        conflictingBins=before.conflictingBins + after.conflictingBins,",
        ("tests/table/compaction/test_compaction.py",),
    ),
    Mutant(
        "rows that only one of two indices knows are found without the other's condition",
        "table/index/lookups.py",
        "        is_only_theirs = ~np.isin(theirs >> _SHIFT, self.fragments)",
        "        is_only_theirs = np.isin(theirs >> _SHIFT, self.fragments)",
        ("tests/table/index/test_scalar_indices.py",),
    ),
    Mutant(
        "rows of fragments that only one of two indices knows are lost",
        "table/index/lookups.py",
        "        is_possible = ~np.isin(mine >> _SHIFT, other.fragments)\n",
        "        is_possible = np.zeros(len(mine), np.bool_)\n",
        (
            "tests/table/index/test_scalar_indices.py::test_rows_of_fragments_that_one_index_does_not_know_stay",
        ),
    ),
    Mutant(
        "rows behind the last zone are in it",
        "table/index/zone_pruning.py",
        "        is_inside = (place >= 0) & (rows < self.stops[np.maximum(place, 0)])",
        "        is_inside = place >= 0",
        ("tests/table/index/test_zone_maps.py",),
    ),
    Mutant(
        "deleted rows count as values",
        "table/index/zone_pruning.py",
        "    values = stops - starts - nulls - zones.nan_count[chosen].astype(np.int64) - lost",
        "    values = stops - starts - nulls - zones.nan_count[chosen].astype(np.int64)",
        ("tests/table/index/test_scan_facts_of_zones.py",),
    ),
    Mutant(
        "ranges of rows reach over fragments",
        "table/index/zone_pruning.py",
        "    joins = keep[1:] & keep[:-1] & (place[1:] == place[:-1])",
        "    joins = keep[1:] & keep[:-1]",
        ("tests/table/index/test_zone_maps.py",),
    ),
    # Found by chance
    Mutant(
        "a rebase forgets what others said of a fragment",
        "commit/rebase.py",
        "replace(now[fragment_id], deletion_file=file)",
        "replace(ours[fragment_id], deletion_file=file)",
        ("tests/commit/test_rebase.py::test_what_others_said_of_the_rows_of_a_fragment_stays",),
    ),
    Mutant(
        "a dropped column takes the row ids in files of their own with it",
        "commit/apply_operation.py",
        "any(f in present or f < TOMBSTONE for f in file.fields)",
        "any(f in present for f in file.fields)",
        ("tests/commit/test_next_manifest.py::test_a_project_keeps_files_that_hold_row_ids_alone",),
    ),
    Mutant(
        "any number of first values is looked up in the driver",
        "table/scan/index_answers.py",
        "if field is None or not 0 < rows <= MOST_FIRST_VALUES:",
        "if field is None:",
        (
            (
                "tests/table/index/test_index_answers.py"
                "::test_more_first_values_than_a_driver_should_hold_are_not_looked_up"
            ),
        ),
    ),
    Mutant(
        "a list of whole floats is not in order",
        "predicate/prune.py",
        "fitting = sorted(number for number",
        "fitting = list(number for number",
        ("tests/predicate/test_pruning.py::test_bounds_of_pages_decide_what_they_can",),
    ),
    Mutant(
        "a rebase writes deletion files of fragments that go",
        "commit/rebase.py",
        "        if fragment_id not in emptied:\n",
        "        if True:\n",
        ("tests/commit/test_rebase.py::test_rebase_joins_what_differs_and_refuses_what_is_shared",),
    ),
    Mutant(
        "every step of a batch goes on behind the first row",
        "table/feed/batch_ends.py",
        "rows_that_fit(changes, start.rows if end == start else 0, budget)",
        "rows_that_fit(changes, start.rows, budget)",
        ("tests/table/feed/test_streams.py::test_every_cut_gives_the_same_rows",),
    ),
    Mutant(
        "net changes that are too many for a batch go with others",
        "table/feed/batch_ends.py",
        "        if place is not None and end != start:\n            return end",
        "        if False:\n            return end",
        (
            (
                "tests/table/feed/test_streams.py"
                "::test_net_changes_keep_to_the_limits_of_a_batch_by_whole_versions"
            ),
        ),
    ),
    Mutant(
        "every version of a batch goes on behind its first row",
        "table/feed/batch_tasks.py",
        "            first=start.rows if version == start.target else 0,",
        "            first=start.rows,",
        ("tests/table/feed/test_streams.py::test_the_batches_of_a_random_history_are_its_feed",),
    ),
    Mutant(
        "what is left of a table begins before a stream's start",
        "table/feed/followed_table.py",
        "min(version for version in there if version >= reached)",
        "min(version for version in there)",
        (
            (
                "tests/table/feed/test_streams.py"
                "::test_a_version_that_was_removed_half_read_is_an_error_or_passed_over"
            ),
        ),
    ),
    Mutant(
        "updates pass for deletes where deletes are ignored",
        "table/feed/followed_table.py",
        "        only_deletes = not changes.kept and not changes.inserted",
        "        only_deletes = not changes.inserted",
        ("tests/table/feed/test_streams.py::test_without_changes_only_appended_rows_are_shown",),
    ),
    Mutant(
        "an index tells of rows that it does not cover",
        "table/index/lookups.py",
        "    addresses = addresses[np.isin(fragments, numbers)]\n",
        "",
        (
            (
                "tests/table/index/test_scalar_indices.py"
                "::test_scans_with_indices_find_what_scans_without_find"
            ),
        ),
    ),
    Mutant(
        "an index that lost rows is asked",
        "table/index/lookups.py",
        "if opened.num_rows is not None and opened.num_rows < least:",
        "if False:",
        (
            (
                "tests/table/index/test_scalar_indices.py"
                "::test_a_segment_that_names_fewer_rows_than_it_covers_is_not_asked"
            ),
        ),
    ),
    Mutant(
        "either of two conditions is answered for fragments that one index knows",
        "table/index/lookups.py",
        "fragments = np.intersect1d(self.fragments, other.fragments, assume_unique=True)",
        "fragments = np.union1d(self.fragments, other.fragments)",
        (
            (
                "tests/table/index/test_scalar_indices.py"
                "::test_rows_of_fragments_that_one_index_does_not_know_stay"
            ),
        ),
    ),
    Mutant(
        "an index with further columns is read as one without",
        "table/index/segments.py",
        "if parse_message(table_pb2.IndexMetadata, entry.raw).covering_fields:",
        "if False:",
        (
            (
                "tests/table/index/test_scalar_indices.py"
                "::test_an_entry_that_is_not_known_is_passed_over"
            ),
        ),
    ),
    Mutant(
        "the first row of a new fragment is taken for the last of the one before",
        "table/index/reused_fragments.py",
        '    which = np.searchsorted(ends, places, "right")',
        '    which = np.searchsorted(ends, places, "left")',
        (
            (
                "tests/table/compaction/test_deferred_remap.py"
                "::test_rows_that_moved_are_found_in_each_of_several_new_fragments"
            ),
        ),
    ),
    Mutant(
        "an index finds rows that were gone when others moved",
        "table/index/reused_fragments.py",
        "    places = places[before[np.minimum(places, len(before) - 1)] == asked]\n",
        "",
        (
            (
                "tests/table/index/test_scalar_indices.py"
                "::test_a_table_whose_indices_follow_later_is_asked_through_the_note"
            ),
        ),
    ),
    # Objects of blobs
    Mutant(
        "a file of blobs beside a data file goes with it, whoever refers to it",
        "table/version/removable_files.py",
        'parents[0]}.lance", f"{DATA}/{parents[0]}/{name}"}',
        'parents[0]}.lance"}',
        ("tests/table/rows/test_objects_of_managed_blobs.py",),
    ),
    Mutant(
        "a cleanup asks no row which blobs it refers to",
        "table/version/blob_references.py",
        "            yield from self._known[key]",
        "            pass",
        ("tests/table/rows/test_objects_of_managed_blobs.py",),
    ),
    Mutant(
        "blobs of deleted rows keep their objects",
        "table/version/blob_references.py",
        "        if deleted is not None:",
        "        if False:",
        ("tests/table/rows/test_managed_blobs.py",),
    ),
    Mutant(
        "blobs that move in a clone are looked for in the clone",
        "datafile/blob_values.py",
        "self.kinds[below], self.ids[below] = MANAGED_IN_BASE, self._file.base_id",
        "pass",
        ("tests/table/rows/test_objects_of_managed_blobs.py",),
    ),
    Mutant(
        "a compaction copies blobs that have an object",
        "table/compaction/compact.py",
        "    if snapshot.schema.manages_blobs:",
        "    if False:",
        ("tests/table/rows/test_managed_blobs.py",),
    ),
    Mutant(
        "blobs of exactly the limit get an object",
        "datafile/blob_records.py",
        "len(piece) <= objects[1].inline",
        "len(piece) < objects[1].inline",
        ("tests/table/rows/test_managed_blobs.py",),
    ),
    Mutant(
        "a write that fails leaves the objects of its blobs",
        "table/rows/write_fragments.py",
        "[*files_of(self.fragments), *self._blob_objects]",
        "files_of(self.fragments)",
        ("tests/table/rows/test_objects_of_managed_blobs.py",),
    ),
    Mutant(
        "the blobs of deleted rows are missed by a verification",
        "table/verify/verify.py",
        "gone = deleted if any(",
        "gone = None if any(",
        ("tests/table/rows/test_managed_blobs.py",),
    ),
    # Indices, notes, windows and net changes, by a hostile reader
    Mutant(
        "rows that left a fragment take it from the indices of fields that others got",
        "commit/apply_operation.py",
        "    if operation.update_mode == 1:\n        for",
        "    if True:\n        for",
        (
            "tests/commit/test_next_manifest.py::test_indices_are_kept_byte_for_byte_or_lose_coverage_only",
        ),
    ),
    Mutant(
        "fragments without rows share a bin",
        "table/compaction/compaction_plan.py",
        "if fragment.id in options.excluded_fragment_ids or not fragment.physical_rows:",
        "if fragment.id in options.excluded_fragment_ids:",
        (
            "tests/table/compaction/test_compaction.py::test_a_fragment_that_was_written_without_rows_stays_and_parts_its_neighbours",
        ),
    ),
    Mutant(
        "a bin reaches over fragments that stay",
        "table/compaction/compaction_plan.py",
        "            previous = None\n            continue",
        "            continue",
        (
            "tests/table/compaction/test_compaction.py::test_a_fragment_that_was_written_without_rows_stays_and_parts_its_neighbours",
        ),
    ),
    Mutant(
        "a small fragment without neighbours is rewritten again and again",
        "table/compaction/compaction_plan.py",
        "if kinds != [Candidate.WITH_NEIGHBOURS]:",
        "if kinds:",
        ("tests/table/compaction/test_compaction.py",),
    ),
    Mutant(
        "a note tells where rows went that no index knows",
        "table/compaction/reuse_index.py",
        "        for index in indices\n        if index.fields\n    )",
        "        for index in indices\n    )",
        (
            "tests/table/compaction/test_deferred_remap.py::test_where_no_index_knows_rows_that_move_again_the_note_stays_as_it_is",
        ),
    ),
    Mutant(
        "an index made before a compaction has followed it",
        "table/compaction/reuse_index.py",
        "return index.dataset_version >= version.dataset_version and index",
        "return index",
        ("tests/table/compaction/test_deferred_remap.py",),
    ),
    Mutant(
        "an index of other fragments keeps the note of a compaction",
        "table/compaction/reuse_index.py",
        "        and not index.fragment_bitmap.isdisjoint(touched)\n",
        "",
        (
            "tests/table/compaction/test_deferred_remap.py::test_an_index_of_other_fragments_has_no_compaction_to_follow",
        ),
    ),
    Mutant(
        "a segment answers for rows that it may not have",
        "table/index/lookups.py",
        "            covered = known.complete(covered, lookups.lengths)\n",
        "",
        (
            "tests/table/index/test_scalar_indices.py::test_rows_that_were_in_no_zone_when_bloom_filters_were_made_are_read",
        ),
    ),
    Mutant(
        "an index that names zones is asked after one that names the rows",
        "table/index/lookups.py",
        "(_covered(lookups, segment) & wanted) - answered",
        "_covered(lookups, segment) & wanted",
        ("tests/table/index/test_scalar_indices.py::test_bloom_filters_leave_zones",),
    ),
    Mutant(
        "a row counts twice that two indices have",
        "table/index/lookups.py",
        "            left -= covered\n            is_by",
        "            is_by",
        (
            "tests/table/index/test_index_answers.py::test_each_row_counts_once_where_two_indices_have_it",
        ),
    ),
    Mutant(
        "rows are among the first by where they were",
        "table/index/lookups.py",
        "is_by_address = not segment.names_row_ids and not _moves(lookups, segment)",
        "is_by_address = not segment.names_row_ids",
        (
            "tests/table/index/test_index_answers.py::test_rows_that_an_index_knows_by_where_they_were_are_among_the_first",
        ),
    ),
    Mutant(
        "an index made after deletes is taken for one that lost rows",
        "table/index/lookups.py",
        "columns.num_rows[np.isin",
        "columns.physical_rows[np.isin",
        ("tests/table/index/test_scalar_indices.py",),
    ),
    Mutant(
        "an index may name the row behind the last one",
        "table/index/lookups.py",
        ">= lengths[places]).any()",
        "> lengths[places]).any()",
        (
            "tests/table/index/test_scalar_indices.py::test_what_cannot_be_is_told_and_the_scan_goes_without",
        ),
    ),
    Mutant(
        "an index that names zones is asked before one that names the rows",
        "table/index/lookups.py",
        "if segment.kind in _INEXACT else -1",
        "if segment.kind in _INEXACT else len(_INEXACT)",
        ("tests/table/index/test_scalar_indices.py::test_bloom_filters_leave_zones",),
    ),
    Mutant(
        "an index that answers for no fragment is told to be used",
        "table/index/lookups.py",
        "return SegmentState(unknown < len(covered), note, num_named)",
        "return SegmentState(True, note, num_named)",
        (
            "tests/table/index/test_scalar_indices.py::test_rows_that_were_in_no_zone_when_bloom_filters_were_made_are_read",
        ),
    ),
    Mutant(
        "rows behind the last zone are in it by bloom filters",
        "table/index/bloom.py",
        "if lengths.get(number) == end]",
        "if lengths.get(number)]",
        (
            "tests/table/index/test_scalar_indices.py::test_rows_that_were_in_no_zone_when_bloom_filters_were_made_are_read",
        ),
    ),
    Mutant(
        "rows before the first zone are in it by bloom filters",
        "table/index/bloom.py",
        "np.where(is_first, 0, np.append(0, ends[:-1]))",
        "np.where(is_first, starts, np.append(0, ends[:-1]))",
        (
            "tests/table/index/test_scalar_indices.py::test_rows_that_were_in_no_zone_when_bloom_filters_were_made_are_read",
        ),
    ),
    Mutant(
        "a null or a value is only looked up as a null",
        "table/index/bloom.py",
        "zones = self.has_null if is_of_null else None",
        "zones = self.has_null",
        ("tests/table/index/test_scalar_indices.py::test_bloom_filters_leave_zones",),
    ),
    Mutant(
        "zero is looked up by one sign",
        "table/index/bloom.py",
        "np.concatenate([fitting, -zeros])",
        "fitting",
        (
            "tests/table/index/test_scalar_indices.py::test_constants_are_looked_up_by_the_bytes_that_columns_have",
        ),
    ),
    Mutant(
        "NaN is looked up by its bits",
        "table/index/bloom.py",
        (
            "    if np.isnan(wide).any():\n"
            "        return None  # They all equal each other, whatever their bits.\n"
        ),
        "",
        (
            "tests/table/index/test_scalar_indices.py::test_constants_are_looked_up_by_the_bytes_that_columns_have",
        ),
    ),
    Mutant(
        "times are looked up by another unit",
        "table/index/bloom.py",
        "bool(seen.unit == stored.unit and (seen.tz is None) == (stored.tz is None))",
        "bool((seen.tz is None) == (stored.tz is None))",
        (
            "tests/table/index/test_scalar_indices.py::test_constants_are_looked_up_by_the_bytes_that_columns_have",
        ),
    ),
    Mutant(
        "times without a zone are looked up as instants",
        "table/index/bloom.py",
        "bool(seen.unit == stored.unit and (seen.tz is None) == (stored.tz is None))",
        "bool(seen.unit == stored.unit)",
        (
            "tests/table/index/test_scalar_indices.py::test_constants_are_looked_up_by_the_bytes_that_columns_have",
        ),
    ),
    Mutant(
        "a float is looked up by the nearest one that fits",
        "table/index/bloom.py",
        "fitting = narrow[narrow.astype(np.float64) == wide.astype(np.float64)]",
        "fitting = narrow",
        (
            "tests/table/index/test_scalar_indices.py::test_constants_are_looked_up_by_the_bytes_that_columns_have",
        ),
    ),
    Mutant(
        "the ends of a type are not looked up",
        "table/index/bloom.py",
        "if limits.min <= number <= limits.max]",
        "if limits.min < number < limits.max]",
        (
            "tests/table/index/test_scalar_indices.py::test_constants_are_looked_up_by_the_bytes_that_columns_have",
        ),
    ),
    Mutant(
        "two zone maps tell of the same rows",
        "table/index/zone_pruning.py",
        "covered = index.fragment_bitmap - answered",
        "covered = index.fragment_bitmap",
        (
            "tests/table/index/test_zone_maps.py::test_of_two_zone_maps_of_a_column_one_tells_of_each_row",
        ),
    ),
    Mutant(
        "zones are asked of fragments that got other values",
        "table/index/zone_pruning.py",
        "np.flatnonzero((places >= 0) & np.isin(zones.fragment_id, ids))",
        "np.flatnonzero(places >= 0)",
        ("tests/table/index_build/test_zone_map_building.py",),
    ),
    Mutant(
        "ranges begin where the one before goes on",
        "table/index/zone_pruning.py",
        "begins = keep & ~np.concatenate([[False], joins])",
        "begins = keep",
        ("tests/table/index/test_zone_maps.py",),
    ),
    Mutant(
        "a single segment is joined again and again",
        "table/index_build/index_plan.py",
        "        if len(joined) == 1 and not missing:\n            joined = []\n",
        "",
        ("tests/table/index_build/test_index_building.py",),
    ),
    Mutant(
        "segments that name row ids are merged as if they named addresses",
        "table/index_build/index_plan.py",
        "        and not segment.names_row_ids\n",
        "",
        ("tests/table/index_build/test_index_building.py",),
    ),
    Mutant(
        "segments that have yet to follow a compaction are merged",
        "table/index_build/index_plan.py",
        "        and reuse_index_of(snapshot.indices) is None\n",
        "",
        (
            "tests/table/index_build/test_index_building.py::test_segments_that_have_yet_to_follow_a_compaction_are_made_anew_of_the_column",
        ),
    ),
    Mutant(
        "segments that cannot be read are merged",
        "table/index_build/index_plan.py",
        "        and segment_state(snapshot, entry).is_asked\n",
        "",
        ("tests/table/index_build/test_index_building.py",),
    ),
    Mutant(
        "a merge takes the row behind the last one",
        "table/index_build/joined_segments.py",
        "(addresses & _OFFSETS >= self._lengths[places])",
        "(addresses & _OFFSETS > self._lengths[places])",
        (
            "tests/table/index_build/test_index_building.py::test_rows_right_behind_the_end_of_a_fragment_are_none",
        ),
    ),
    Mutant(
        "null lists are no rows that may have moved",
        "table/index_build/index_plan.py",
        "    if number is not None:",
        "    if False:",
        (
            "tests/table/index_build/test_index_building.py::test_a_null_list_that_became_another_makes_its_segment_anew",
        ),
    ),
    Mutant(
        "segments whose fragments are gone stay",
        "table/index_build/index_plan.py",
        "(len(dead) == 0 or not alive)",
        "True",
        (
            "tests/table/index_build/test_index_building.py::test_a_segment_whose_fragments_are_gone_is_forgotten",
        ),
    ),
    Mutant(
        "zones that are made anew are taken over, too",
        "table/index_build/zone_maps.py",
        "ids = frozenset(entry.fragment_bitmap or ()) & unchanged",
        "ids = frozenset(entry.fragment_bitmap or ())",
        (
            "tests/table/index_build/test_zone_map_building.py::test_zone_maps_that_lack_different_fragments_have_each_row_once",
        ),
    ),
    Mutant(
        "nulls of fragments that are gone are taken over",
        "table/index_build/zone_maps.py",
        " for id_, bitmap in nulls_known.items() if id_ in ids}",
        " for id_, bitmap in nulls_known.items()}",
        (
            "tests/table/index_build/test_zone_map_building.py::test_zone_maps_that_lack_different_fragments_have_each_row_once",
        ),
    ),
    Mutant(
        "a zone goes on in the next fragment",
        "table/index_build/zone_cuts.py",
        "if fragments[0] == self._fragment:",
        "if self._filled:",
        (
            "tests/table/index_build/test_zone_map_building.py::test_zones_end_with_their_fragment_wherever_batches_end",
        ),
    ),
    Mutant(
        "segments of zone maps stay several",
        "table/index_build/zone_maps.py",
        "(len(entries) == 1 and not uncovered)",
        "not uncovered",
        ("tests/table/index_build/test_zone_map_building.py::test_segments_of_pylance_become_one",),
    ),
    Mutant(
        "the last row of a band is in none",
        "table/feed/net_changes.py",
        "(row_ids <= np.uint64(high))",
        "(row_ids < np.uint64(high))",
        ("tests/table/feed/test_net_changes.py",),
    ),
    Mutant(
        "a row that two steps end and begin with passes through twice",
        "table/feed/net_changes.py",
        (
            "    reached = np.maximum.accumulate(high)\n"
            "    is_new = np.concatenate(([True], low[1:] > reached[:-1]))"
        ),
        (
            "    reached = np.maximum.accumulate(high)\n"
            "    is_new = np.concatenate(([True], low[1:] >= reached[:-1]))"
        ),
        ("tests/table/feed/test_net_changes.py", "tests/table/feed/test_change_feed.py"),
    ),
    Mutant(
        "a window that begins with the end of a band is in none",
        "table/feed/net_changes.py",
        "(low <= np.uint64(end))",
        "(low < np.uint64(end))",
        ("tests/table/feed/test_net_changes.py",),
    ),
    Mutant(
        "rows that moved are taken to be where they were",
        "table/feed/net_changes.py",
        "            rows[owner].in_place = False\n",
        "            pass\n",
        ("tests/table/feed/test_net_changes.py", "tests/table/feed/test_change_feed.py"),
    ),
    Mutant(
        "the last step of a row tells its commit, whatever changed it",
        "table/feed/net_changes.py",
        "np.where(told < 0, ends, told)",
        "ends",
        ("tests/table/feed/test_change_feed.py",),
    ),
    Mutant(
        "a range that reaches over others shares no row with those behind them",
        "table/feed/net_changes.py",
        "reached = np.maximum.accumulate(high)\n    is_new",
        "reached = high\n    is_new",
        ("tests/table/feed/test_net_changes.py", "tests/table/feed/test_change_feed.py"),
    ),
    Mutant(
        "rows that show other values in the same files stay the same",
        "table/feed/version_changes.py",
        "if successor == fragment and not holds_any(fragment, shown_once):",
        "if successor == fragment:",
        (
            "tests/table/feed/test_change_feed.py",
            "tests/table/feed/test_restored_columns.py",
            "tests/table/feed/test_columns_of_change_feeds.py",
        ),
    ),
    Mutant(
        "hidden lineage of a fragment never changes",
        "table/feed/version_changes.py",
        " or (\n            new.last_updated_at is SPILLED and old.files != new.files\n        )",
        "",
        (
            "tests/table/feed/test_change_feed.py::test_values_written_in_place_are_followed_where_lineage_is_hidden_again",
        ),
    ),
    Mutant(
        "values in other files are the same where lineage tells of no update",
        "table/feed/version_changes.py",
        "both if replaced else updated, updated",
        "updated, updated",
        ("tests/table/feed/test_change_feed.py",),
    ),
    Mutant(
        "moved rows that show other values are left out",
        "table/feed/version_changes.py",
        "moved if show_more else [rows.only_updated() for rows in moved]",
        "[rows.only_updated() for rows in moved]",
        (
            "tests/table/feed/test_change_feed.py",
            "tests/table/feed/test_restored_columns.py",
            "tests/table/feed/test_columns_of_change_feeds.py",
        ),
    ),
    Mutant(
        "ranges that share their ends share no row",
        "table/feed/version_changes.py",
        'np.searchsorted(low, last, side="right")',
        'np.searchsorted(low, last, side="left")',
        ("tests/table/feed/test_change_feed.py",),
    ),
    Mutant(
        "ranges that share their first number share no row",
        "table/feed/version_changes.py",
        "reached[np.maximum(below, 1) - 1] >= first",
        "reached[np.maximum(below, 1) - 1] > first",
        ("tests/table/feed/test_change_feed.py",),
    ),
    Mutant(
        "fragments behind the last new one have not vanished",
        "table/feed/version_changes.py",
        "return [*only_old, *old[here:]], [*only_new, *new[there:]]",
        "return only_old, [*only_new, *new[there:]]",
        ("tests/table/feed/test_change_feed.py",),
    ),
    Mutant(
        "whoever follows a table from now on is refused",
        "table/feed/change_window.py",
        "first > newest + 1",
        "first > newest",
        ("tests/table/feed/test_change_feed.py",),
    ),
    Mutant(
        "a window that leaves out both ends is refused",
        "table/feed/change_window.py",
        "starting.version > ending.version:",
        "first > end:",
        ("tests/table/feed/test_change_feed.py",),
    ),
    Mutant(
        "the first version of a branch is looked for in its parent",
        "table/feed/change_window.py",
        "needed < branch.parentVersion",
        "needed <= branch.parentVersion",
        (
            "tests/table/feed/test_change_feed.py::test_what_was_before_a_branch_is_not_called_removed",
        ),
    ),
    Mutant(
        "a start behind the end of the window is proposed",
        "table/feed/change_window.py",
        "if v >= needed and v + 1 <= end)",
        "if v >= needed)",
        (
            "tests/table/feed/test_change_feed.py::test_what_was_before_a_branch_is_not_called_removed",
        ),
    ),
    Mutant(
        "a window that is resolved again has the end that it leaves out",
        "table/feed/change_window.py",
        "end = pinned_end if ending.version is None else ending.version - ending.is_exclusive",
        "end = pinned_end if ending.version is None else ending.version",
        ("tests/table/feed/test_change_feed.py",),
    ),
    Mutant(
        "a window that is resolved again goes on to the newest version",
        "table/feed/change_window.py",
        "known = pinned_end or (end if is_there else locations[-1].version)",
        "known = end if is_there else locations[-1].version",
        (
            "tests/table/feed/test_change_feed.py::test_a_window_without_versions_stays_empty_when_it_is_resolved_again",
        ),
    ),
    # What indices are taken to know
    Mutant(
        "a null struct has the values that lie below it",
        "table/scan/column_paths.py",
        "values = pc.struct_field(values, name)",
        "values = values.field(name)",
        (
            "tests/table/index_build/test_index_building.py::test_members_of_null_structs_are_null_though_packed_structs_keep_their_values",
        ),
    ),
    Mutant(
        "a page of a B-tree may have nulls behind values",
        "table/index/btree.py",
        "if not is_in_order(ends_in_turns):",
        "if not is_in_order(ends_in_turns.drop_null()):",
        (
            "tests/table/index/test_scalar_indices.py::test_rows_around_a_null_that_comes_behind_values_are_not_lost",
        ),
    ),
    Mutant(
        "zones of another type are compared with a column",
        "table/index/zone_pruning.py",
        "if not is_of_type(zones.minimum.type, field):",
        "if False:",
        ("tests/table/index/test_zone_maps.py::test_an_index_that_is_not_known_prunes_nothing",),
    ),
    Mutant(
        "small segments beside many new rows are never joined",
        "table/index_build/index_plan.py",
        " > rows_per_segment and len(stored) == 1:",
        " > rows_per_segment:",
        (
            "tests/table/index_build/test_index_building.py::test_small_segments_are_joined_beside_many_new_rows_if_there_are_several",
        ),
    ),
    Mutant(
        "one small segment is written again beside many new rows",
        "table/index_build/index_plan.py",
        " > rows_per_segment and len(stored) == 1:",
        " > rows_per_segment and len(stored) == 0:",
        (
            "tests/table/index_build/test_index_building.py::test_small_segments_are_joined_beside_many_new_rows_if_there_are_several",
        ),
    ),
    Mutant(
        "pages of a B-tree follow each other in any order",
        "table/index/btree.py",
        "if not is_in_order(ends_in_turns):",
        "if False:",
        (
            "tests/table/index/test_scalar_indices.py::test_what_cannot_be_is_told_and_the_scan_goes_without",
        ),
    ),
    Mutant(
        "a segment is asked of whose fragments it knows not all rows of any",
        "table/index/lookups.py",
        "SegmentState(unknown < len(covered), note, num_named)",
        "SegmentState(True, note, num_named)",
        (
            "tests/table/index/test_scalar_indices.py::test_rows_that_were_in_no_zone_when_bloom_filters_were_made_are_read",
        ),
    ),
    Mutant(
        "rows that moved out of fragments that keep others count as there",
        "table/index_build/index_plan.py",
        "not set(now.tolist()) <= set(fragments)",
        "not set(fragments) <= set(now.tolist())",
        (
            "tests/table/index_build/test_index_building.py::test_rows_that_moved_are_not_found_by_their_old_values",
        ),
    ),
    Mutant(
        "items of lists that a file has already are not counted",
        "table/rows/write_fragments.py",
        "room = self._most - self._counts.get(key, 0)",
        "room = self._most",
        ("tests/table/compaction/test_compaction.py",),
    ),
    Mutant(
        "a file takes one row more than its lists have room for",
        "table/rows/write_fragments.py",
        'side="right")) - 1, 0)',
        'side="right")), 0)',
        ("tests/table/compaction/test_compaction.py",),
    ),
    Mutant(
        "the last fragment of each group is in no segment",
        "table/index_build/index_plan.py",
        "groups.append(range(start, number + 1))",
        "groups.append(range(start, number))",
        ("tests/table/index_build/test_index_building.py",),
    ),
)
