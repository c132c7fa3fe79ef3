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
public record LanceChanges(LanceTable table) implements Changelog {
  /** Options that Spark has converted to a {@code ChangelogContext}. */
  private static final Set<String> OF_CONTEXT = Set.of(
      "startingversion", "endingversion", "startingtimestamp", "endingtimestamp",
      "startingboundinclusive", "endingboundinclusive", "deduplicationmode", "computeupdates");

  /** Returns this type rather than the class, so that callers link without the interface. */
  public static Changelog of(LanceTable table) { return new LanceChanges(table); }

  /** The options of a read of these changes. */
  public static CaseInsensitiveStringMap options(
      ChangelogContext asked, CaseInsensitiveStringMap given) {
    CaseInsensitiveStringMap read = Options.with(others(given),
        "readChangeFeed", "true", "deduplicationMode", asked.deduplicationMode().value());
    if (asked.range() instanceof ChangelogRange.VersionRange range) {
      return Options.with(read,
          "startingVersion", range.startingVersion(),
          "_lance.after", range.startingBoundInclusive() ? null : "true",
          "endingVersion", range.endingVersion().orElse(null),
          "_lance.until", range.endingBoundInclusive() ? null : "true");
    }
    if (asked.range() instanceof ChangelogRange.TimestampRange range) {
      // Commits have nanoseconds, so two microseconds later is after all with the same microsecond.
      long first = range.startingBoundInclusive() ? 0 : 2;
      long last = range.endingBoundInclusive() ? 0 : -2;
      return Options.with(read,
          "startingTimestamp", Options.time(range.startingTimestamp() + first),
          "endingTimestamp",
          range.endingTimestamp().map(end -> Options.time(end + last)).orElse(null));
    }
    return read;
  }

  private static CaseInsensitiveStringMap others(CaseInsensitiveStringMap given) {
    Map<String, String> others = new HashMap<>(given.asCaseSensitiveMap());
    others.keySet().removeIf(name -> OF_CONTEXT.contains(name.toLowerCase(Locale.ROOT)));
    return new CaseInsensitiveStringMap(others);
  }

  @Override public String name() { return table.name(); }

  @Override public Column[] columns() { return table.columns(); }

  @Override public boolean containsCarryoverRows() { return false; }

  @Override public boolean containsIntermediateChanges() { return false; }

  @Override public boolean representsUpdateAsDeleteAndInsert() { return false; }

  /** The versions are fixed; some releases of Spark only pass options here. */
  @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap more) {
    CaseInsensitiveStringMap all = Options.merge(table.options(), others(more));
    return new LanceScanBuilder(table.described(), table.schema(), all);
  }
}
