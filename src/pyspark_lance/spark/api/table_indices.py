"""The methods of ``LanceTable`` that create and maintain indices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.jobs.stages import run_on_executors
from pyspark_lance.spark.options.spellings import COMMIT_OPTIONS, changes_table, checks_keywords
from pyspark_lance.spark.options.write_settings import change_settings, options_of_change
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.index_build.column_indices import (
    BuildParts,
    IndexResult,
    build_part,
    create_index,
    drop_index,
)
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.index_build.text_indices import index_kind, tokenizer_options
from pyspark_lance.table.index_build.vector_indices import refresh_all_indices
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.metadata_commits import MetadataResult


@checks_keywords
class TableIndices:
    """Creates, refreshes, optimizes and drops indices of columns."""

    _spark: SparkSession
    _table: Table

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
    def createIndex(  # noqa: N802, PLR0913
        self,
        columns: str | Sequence[str],
        kind: str = "btree",
        *,
        name: str | None = None,
        replace: bool = False,
        rowsPerZone: int | None = None,  # noqa: N803
        withPosition: bool | None = None,  # noqa: N803
        baseTokenizer: str | None = None,  # noqa: N803
        language: str | None = None,
        maxTokenLength: int | None = None,  # noqa: N803
        lowerCase: bool | None = None,  # noqa: N803
        stem: bool | None = None,
        removeStopWords: bool | None = None,  # noqa: N803
        customStopWords: Sequence[str] | None = None,  # noqa: N803
        asciiFolding: bool | None = None,  # noqa: N803
        minNgramLength: int | None = None,  # noqa: N803
        maxNgramLength: int | None = None,  # noqa: N803
        prefixOnly: bool | None = None,  # noqa: N803
        **options: str,
    ) -> IndexResult:
        """Create an index on each column, on the executors, in one version.

        Scans, deletes, updates and merges then look up the rows that can match their condition, and
        so does Lance. Each task writes one segment of the index, for some of the fragments. Rows
        written later are read without the index, until ``refreshIndices``.

        Args:
            columns: A name, or several; a field of a struct is ``struct.field``.
            kind: ``btree``; ``bitmap``, for columns with few distinct values; ``label_list``, for
                lists; ``zonemap``, for rows roughly sorted by the column; ``bloomfilter``, a small
                index for lookups of single values only; ``ngram``, for parts of strings;
                ``inverted`` (or ``fts``), for full-text search; ``minhash_lsh``, for
                ``nearDuplicates``.
            name: Name of the index, if it is on one column; ``<column>_idx`` by default.
            replace: Whether an existing index is rebuilt.
            rowsPerZone: Live rows per zone of a ``zonemap`` or ``bloomfilter``; None for 8192.
            withPosition: Whether an ``inverted`` index stores where words are, for phrases; this
                and all below is for this kind, and has Lance's defaults.
            baseTokenizer: ``simple``: words of letters and digits; ``whitespace``; ``raw``: a text
                is one token; ``ngram``: runs of characters.
            language: Of stems and stop words; ``English`` by default.
            maxTokenLength: Tokens of so many bytes are left out; 40 by default, 0 for no limit.
            lowerCase: Whether tokens are in lower case; true by default.
            stem: Whether words become their stems, which needs the package ``snowballstemmer``;
                true by default, but for n-grams.
            removeStopWords: Whether frequent words are left out; true by default, but for n-grams.
            customStopWords: Words to leave out in place of those of the language.
            asciiFolding: Whether letters lose their accents; true by default.
            minNgramLength: Characters of an n-gram, at least; 3 by default.
            maxNgramLength: Characters of an n-gram, at most; 3 by default.
            prefixOnly: Whether n-grams are only those a text begins with; false by default.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: No such column or kind, or an index of this name exists.
            UnsupportedFeatureError: Values of the column cannot have such an index.
            RetryableCommitError: Other commits conflicted with this one too often.

        Examples:
            >>> result = table.createIndex("id")
            >>> result.names, result.numSegments, result.numRows
            (('id_idx',), 1, 3)
        """
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        given = {
            "with_position": withPosition,
            "base_tokenizer": baseTokenizer,
            "language": language,
            "max_token_length": maxTokenLength,
            "lower_case": lowerCase,
            "stem": stem,
            "remove_stop_words": removeStopWords,
            "custom_stop_words": customStopWords,
            "ascii_folding": asciiFolding,
            "min_ngram_length": minNgramLength,
            "max_ngram_length": maxNgramLength,
            "prefix_only": prefixOnly,
        }
        kind = index_kind(kind)
        text = tokenizer_options(kind, given)
        return create_index(
            self._table,
            IndexRequest(names, kind, name, replace, rows_per_zone=rowsPerZone, text=text),
            self._of_commit(options),
            build=self._build(),
        )

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
    def refreshIndices(  # noqa: N802
        self, name: str | None = None, **options: str
    ) -> IndexResult:
        """Add to indices the rows that were written, compacted or updated since the last refresh.

        Only fragments that an index does not cover are read, and those of segments that have old
        values or texts of updated rows. If there are none, no version is made. Vector indices get a
        version of their own, as with ``refreshVectorIndices``.

        Args:
            name: Name of an index; None for all indices that ``createIndex`` and
                ``createVectorIndex`` can make.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: There is no such index.
            RetryableCommitError: Other commits conflicted with this one too often.

        Examples:
            >>> _ = table.createIndex("id")
            >>> table.refreshIndices().names
            ()
        """
        run = partial(run_on_executors, self._spark)
        return refresh_all_indices(self._table, name, self._of_commit(options), run=run)

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
    def optimizeIndices(  # noqa: N802
        self, name: str | None = None, **options: str
    ) -> IndexResult:
        """Refresh indices as ``refreshIndices`` does, and merge small segments.

        Each refresh adds a segment, and a query looks up all of them. Segments of a B-tree are
        merged, up to 64 million rows each, without reading the column. For other kinds, segments
        with less than 2 million rows are rebuilt as one; those of texts and vectors are merged
        without making tokens or codes again.

        Args:
            name: Name of an index; None for all indices that ``createIndex`` and
                ``createVectorIndex`` can make.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: There is no such index.
            RetryableCommitError: Other commits conflicted with this one too often.

        Examples:
            >>> _ = table.createIndex("id")
            >>> table.toDF().write.format("lance").mode("append").save(path)
            >>> table.optimizeIndices("id_idx").numRows
            6
        """
        run = partial(run_on_executors, self._spark)
        given = self._of_commit(options)
        return refresh_all_indices(self._table, name, given, run=run, joins_segments=True)

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
    def dropIndex(self, name: str, **options: str) -> MetadataResult:  # noqa: N802
        """Drop an index of any kind; a later cleanup removes its files.

        Args:
            name: Name of the index.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: There is no such index.

        Examples:
            >>> _ = table.createIndex("id")
            >>> table.dropIndex("id_idx").version
            3
        """
        return drop_index(self._table, name, self._of_commit(options))

    def _build(self) -> BuildParts:
        return partial(run_on_executors, self._spark, build_part)

    def _of_commit(self, options: dict[str, str]) -> ChangeSettings:
        return change_settings(options_of_change(options, self._table, self._spark))
