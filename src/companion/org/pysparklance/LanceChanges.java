package org.pysparklance;

import java.util.*;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What changed in a table: {@code SELECT … CHANGES FROM VERSION 3 TO VERSION 7}. Python gives the
 * changes as they were asked for, so Spark has nothing left to remove, to pair or to merge.
 * Only Spark 4.2 and newer come here; older releases lack the interface.
 */
record LanceChanges(LanceTable table) implements Changelog {
  /** What the range says, too, and what Python has no use for. */
  private static final Set<String> SPARKS_OWN =
      Set.of("startingboundinclusive", "endingboundinclusive", "computeupdates");

  /** Of this type, and not of the class, so that the caller links where the interface lacks. */
  static Changelog of(LanceTable table) { return new LanceChanges(table); }

  /** The options of a read that gives these changes: both of its bounds are part of the range. */
  static CaseInsensitiveStringMap options(
      ChangelogContext asked, CaseInsensitiveStringMap given) {
    Map<String, String> read = new HashMap<>(given.asCaseSensitiveMap());
    read.keySet().removeIf(name -> SPARKS_OWN.contains(name.toLowerCase(Locale.ROOT)));
    long first = asked.range().startingBoundInclusive() ? 0 : 1;
    long last = asked.range().endingBoundInclusive() ? 0 : -1;
    CaseInsensitiveStringMap all = Options.with(new CaseInsensitiveStringMap(read),
        "readChangeFeed", "true", "deduplicationMode", asked.deduplicationMode().value());
    if (asked.range() instanceof ChangelogRange.VersionRange range) {
      return Options.with(all,
          "startingVersion", version(range.startingVersion(), first),
          "endingVersion", range.endingVersion().map(end -> version(end, last)).orElse(null));
    }
    if (asked.range() instanceof ChangelogRange.TimestampRange range) {
      return Options.with(all,
          "startingTimestamp", Options.time(range.startingTimestamp() + first),
          "endingTimestamp", range.endingTimestamp().map(end -> Options.time(end + last)).orElse(null));
    }
    return all;
  }

  /** The version so many after another; what is no number is for Python to refuse. */
  private static String version(String version, long after) {
    return version.matches("\\d{1,18}") ? Long.toString(Long.parseLong(version) + after) : version;
  }

  @Override public String name() { return table.name(); }

  @Override public Column[] columns() { return table.columns(); }

  @Override public boolean containsCarryoverRows() { return false; }

  @Override public boolean containsIntermediateChanges() { return false; }

  @Override public boolean representsUpdateAsDeleteAndInsert() { return false; }

  @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return table.newScanBuilder(CaseInsensitiveStringMap.empty());
  }
}
