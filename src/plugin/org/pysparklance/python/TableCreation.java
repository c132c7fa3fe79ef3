package org.pysparklance.python;

import java.util.List;
import java.util.Map;

/**
 * What a write or a CREATE TABLE makes of a new table.
 *
 * @param replaces whether it replaces an existing table; otherwise there must be none
 * @param properties the properties that the table stores
 * @param clusterBy the clustering columns; null for those that the table has
 */
public record TableCreation(boolean replaces, Map<String, String> properties,
    List<String> clusterBy) {
  /** A table without any properties. */
  public static final TableCreation PLAIN = new TableCreation(false, Map.of(), null);
}
