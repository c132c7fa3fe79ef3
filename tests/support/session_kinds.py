"""Which session the files of ``tests/spark`` run in: without the plugin, with it, or in both.

A process has one JVM, so each kind has a process of its own.  In a session with the plugin Spark
plans scans, writes, streams and statements in Java, and rows and batches take other ways to
Python; what LanceTable does is the same Python in both, and so are the readers and writers that
plans carry.  A new file goes into one of the tables.  ``poe nightly`` has all of them in both
kinds, and with stages of queries compiled whole, which others have on demand.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "spark"

PLAIN, PLUGIN = KINDS = ("plain", "plugin")

# What is another way with the plugin. A test of a file may be named by itself.
BOTH_KINDS = {
    "test_columns_in_spark.py::"
    "test_merge_schema_replace_where_and_numbered_batches": "options of a write",
    "test_errors_of_workers.py::"
    "test_damaged_file_raises_same_error_in_every_method": "it crosses Java from a worker",
    "test_errors_of_workers.py::test_invalid_utf8_is_refused_by_every_write": "so does this",
    "test_json_and_blobs.py": "their batches and rows",
    "test_nearest.py::test_nearest_accepts_one_several_and_frame_queries": "beside the plugin",
    "test_nearest.py::test_nearest_is_read_option": "a read of its own kind",
    "test_options.py": "names of options, which Java passes on",
    "test_read_and_write.py": "every read and every write",
    "test_support_matrix.py": "every statement, of which each kind has its own",
    "test_types.py": "values of every type, in batches and rows",
}

# Once, with the plugin, as users have it: without it the same readers and writers are carried by
# plans that test_read_and_write, test_types and the files of ONE_KIND go through, too.
WITH_PLUGIN = {
    "test_change_feed.py": "scans of the feed: columns, filters, counts, what is refused",
    "test_change_rows.py": "pinned scans with lineage, and the words of errors in them",
    "test_copies_of_blobs.py": "every way from one table into another",
    "test_encoding_options.py": "options of columns in a write",
    "test_migrate_example.py": "merges of frames, as users run them",
    "test_metadata_tables.py": "scans of tables that have no files",
    **{
        f"test_names_of_paths.py::test_tables_and_parquet_share_folders_of_{which}": "statements"
        for which in ("sampled_names", "all_names")
    },
    "test_real_sizes.py::test_large_fragment_is_read_by_several_tasks": "large batches",
    "test_real_sizes.py::test_hundred_thousand_vectors_survive_changes": "large batches of lists",
    "test_replaced_tables.py": "versions that plans and checkpoints remember",
    "test_s3_in_spark.py": "credentials on their way through Java",
    **{
        f"test_streams.py::{test}": "what reaches Python's source and sink through Java"
        for test in (
            "test_unsupported_sink_options_are_refused",
            "test_feed_shows_requested_columns_and_changes",
            "test_progress_shows_versions_behind",
            "test_invalid_stream_options_are_refused_on_load",
            "test_unsupported_stream_reads_are_refused",
            "test_catalog_table_is_followed",
            "test_query_restarts_after_schema_change",
        )
    },
    "test_user_types.py": "types of users, which Java sees as what they hold",
    "test_variants.py": "values that reach Python as something else",
}

# Once, without the plugin, and why that is enough.
ONE_KIND = {
    "test_apply_changes.py": "a merge, behind a feed, which test_change_feed reads",
    "test_clustering_columns.py": "LanceTable and options; test_cluster_by has the plugin's",
    "test_column_expressions.py": "Spark's own trees, which no jar changes",
    "test_columns_in_spark.py": "jobs of Python functions",
    "test_create.py": "LanceTable alone; the plugin's CREATE TABLE has tests of its own",
    "test_debezium_layout.py": "columns that Python arranges; test_change_feed reads the feed",
    "test_errors_of_workers.py": "errors of LanceTable, whose methods are Python in both",
    "test_evolving_merge.py": "columns are added by the driver, before merges of other files",
    "test_hadoop_settings.py": "LanceTable and options; the plugin has tests of its own",
    "test_delta_compatibility.py": "names of methods and options, which are Python",
    "test_hostile_names.py": "names and values in expressions of LanceTable, which is Python",
    "test_job_descriptions.py": "LanceTable describes its jobs",
    "test_merge_columns.py": "jobs of Python functions behind the scans of test_change_rows",
    "test_names_of_paths.py": "where paths lead, which is Python",
    "test_nearest.py": "jobs of Python functions that read the table by themselves",
    "test_plain_merge.py": "jobs of Python functions that read the target by themselves",
    "test_predicate_against_spark.py": "our answers beside those of Spark's own rows",
    "test_public_calls.py": "parameters of methods, which are Python",
    "test_real_sizes.py": "changes at scale, which are jobs of Python functions",
    "test_search.py": "jobs of Python functions that read the table by themselves",
    "test_semi_join.py": "jobs of Python functions that read the target by themselves",
    "test_worker_overhead.py": "Python's workers, in sessions of either kind",
    "test_streams.py": "which rows a batch has, which is Python",
    "test_source_names.py": "what Spark's analysis says of names",
    "test_killed_batches.py": "a merge in a batch, which is jobs of Python functions",
    "test_local_search.py": "searches in the driver, whose plan is the same in both",
    "test_maintenance.py": "jobs of Python functions",
    "test_values_of_merges.py": "what LanceTable asks of Spark, whose plan is the same in both",
}


def is_whole() -> bool:
    """Whether this run has all tests in both kinds, and with stages compiled whole."""
    return bool(os.environ.get("PYSPARK_LANCE_BOTH_KINDS"))


def kinds_of(path: Path, test: str) -> tuple[str, ...]:
    """The kinds of sessions that a test runs in; those of files in no table are both."""
    if path.parent != FOLDER:
        return (PLAIN,)
    if is_whole():
        return KINDS
    file, own = path.name, f"{path.name}::{test}"
    if file in WITH_PLUGIN or own in WITH_PLUGIN:
        return (PLUGIN,)
    return (PLAIN,) if file in ONE_KIND and own not in BOTH_KINDS else KINDS
