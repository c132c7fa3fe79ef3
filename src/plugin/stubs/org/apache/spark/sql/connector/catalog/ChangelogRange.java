package org.apache.spark.sql.connector.catalog;

import java.util.Optional;

public interface ChangelogRange {
  boolean startingBoundInclusive();

  boolean endingBoundInclusive();

  record VersionRange(String startingVersion, Optional<String> endingVersion,
      boolean startingBoundInclusive, boolean endingBoundInclusive) implements ChangelogRange {}

  record TimestampRange(long startingTimestamp, Optional<Long> endingTimestamp,
      boolean startingBoundInclusive, boolean endingBoundInclusive) implements ChangelogRange {}
}
