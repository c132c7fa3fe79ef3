package org.pysparklance.catalog;

import java.util.*;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Options;
import org.pysparklance.read.LanceScanBuilder;

/**
 * Changes of a table: {@code SELECT … CHANGES FROM VERSION 3 TO VERSION 7}. Python returns the
 * changes in the requested form, so Spark does not have to remove, pair or merge any.
 * Only Spark 4.2 and newer call this; older releases lack the interface.
 */
public record LanceChangelog(LanceTable table) implements Changelog {
  /** Options that Spark has converted to a {@code ChangelogContext}. */
  private static final Set<String> CONTEXT_OPTIONS = Set.of(
      "startingversion", "endingversion", "startingtimestamp", "endingtimestamp",
      "startingboundinclusive", "endingboundinclusive", "deduplicationmode", "computeupdates");

  /** Returns this type rather than the class, so that callers link without the interface. */
  public static Changelog of(LanceTable table) { return new LanceChangelog(table); }

  /** The options of a read of these changes. */
  public static CaseInsensitiveStringMap options(
      ChangelogContext context, CaseInsensitiveStringMap options) {
    CaseInsensitiveStringMap readOptions = Options.with(withoutContextOptions(options),
        "readChangeFeed", "true", "deduplicationMode", context.deduplicationMode().value());
    if (context.range() instanceof ChangelogRange.VersionRange range) {
      return Options.with(readOptions,
          "startingVersion", range.startingVersion(),
          "_lance.after", range.startingBoundInclusive() ? null : "true",
          "endingVersion", range.endingVersion().orElse(null),
          "_lance.until", range.endingBoundInclusive() ? null : "true");
    }
    if (context.range() instanceof ChangelogRange.TimestampRange range) {
      // Commits have nanoseconds, so two microseconds later is after all with the same microsecond.
      long startMicros = range.startingBoundInclusive() ? 0 : 2;
      long endMicros = range.endingBoundInclusive() ? 0 : -2;
      return Options.with(readOptions,
          "startingTimestamp", Options.formatTimestamp(range.startingTimestamp() + startMicros),
          "endingTimestamp",
          range.endingTimestamp()
              .map(end -> Options.formatTimestamp(end + endMicros)).orElse(null));
    }
    return readOptions;
  }

  private static CaseInsensitiveStringMap withoutContextOptions(CaseInsensitiveStringMap options) {
    Map<String, String> remaining = new HashMap<>(options.asCaseSensitiveMap());
    remaining.keySet().removeIf(name -> CONTEXT_OPTIONS.contains(name.toLowerCase(Locale.ROOT)));
    return new CaseInsensitiveStringMap(remaining);
  }

  @Override public String name() { return table.name(); }

  @Override public Column[] columns() { return table.columns(); }

  @Override public boolean containsCarryoverRows() { return false; }

  @Override public boolean containsIntermediateChanges() { return false; }

  @Override public boolean representsUpdateAsDeleteAndInsert() { return false; }

  /** The versions are fixed; some releases of Spark only pass options here. */
  @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap scanOptions) {
    CaseInsensitiveStringMap all =
        Options.merge(table.options(), withoutContextOptions(scanOptions));
    return new LanceScanBuilder(table.loadDescription(), table.schema(), all);
  }
}
