package org.apache.spark.sql.connector.catalog;

public abstract class ChangelogContext {
  public abstract ChangelogRange range();

  public abstract DeduplicationMode deduplicationMode();

  public enum DeduplicationMode {
    ;

    public String value() { return null; }
  }
}
