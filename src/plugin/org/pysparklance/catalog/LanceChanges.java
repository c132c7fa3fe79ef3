package org.pysparklance.catalog;

import java.util.*;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Options;
import org.pysparklance.read.LanceScanBuilder;

/**
 * What changed in a table: {@code SELECT … CHANGES FROM VERSION 3 TO VERSION 7}. Python gives the
 * changes as they were asked for, so Spark has nothing left to remove, to pair or to merge.
 * Only Spark 4.2 and newer come here; older releases lack the interface.
 */
public record LanceChanges(LanceTable table) implements Changelog {
  /** Options that Spark has made a {@code ChangelogContext} of. */
  private static final Set<String> OF_CONTEXT = Set.of(
      "startingversion", "endingversion", "startingtimestamp", "endingtimestamp",
      "startingboundinclusive", "endingboundinclusive", "deduplicationmode", "computeupdates");

  /** Of this type, and not of the class, so that the caller links where the interface lacks. */
  public static Changelog of(LanceTable table) { return new LanceChanges(table); }

  /** The options of a read that gives these changes. */
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
      // Commits have nanoseconds: two microseconds on is surely past all that shows as one.
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

  /** The versions stay; which options come only now depends on the release of Spark. */
  @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap more) {
    CaseInsensitiveStringMap all = Options.merge(table.options(), others(more));
    return new LanceScanBuilder(table.described(), table.schema(), all);
  }
}
