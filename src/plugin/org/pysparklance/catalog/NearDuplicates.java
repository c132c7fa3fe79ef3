package org.pysparklance.catalog;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.spark.sql.Column;

/**
 * {@code SELECT * FROM near_duplicates('/data/t', 'a quick brown fox', 10)}: a read with the option
 * search that compares whole texts.
 */
final class NearDuplicates extends SearchFunction {
  NearDuplicates() {
    super("near_duplicates", List.of("table", "query", "num_results"), "search", "_distance",
        "max_distance => 0.3",
        "for the texts of rows use LanceTable.nearDuplicates");
  }

  @Override Column order(Column score) { return score.asc(); }

  @Override boolean isSingleQuery(ObjectNode arguments) { return true; }

  @Override void addArguments(ObjectNode arguments) { arguments.put("near_duplicates", true); }
}
