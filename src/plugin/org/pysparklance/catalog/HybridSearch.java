package org.pysparklance.catalog;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.spark.sql.Column;

/**
 * {@code SELECT * FROM hybrid_search('/data/t', 'lazy dog', array(0.5, 1.5), 10)}: a read with the
 * option search that has words and a vector.
 */
final class HybridSearch extends SearchFunction {
  HybridSearch() {
    super("hybrid_search", List.of("table", "query", "query_vector", "num_results"), "search",
        "_score", "vector_column => 'v'",
        "for the texts and vectors of rows call LanceTable.hybridSearch for each");
  }

  @Override Column order(Column score) { return score.desc(); }

  @Override boolean isSingleQuery(ObjectNode arguments) { return true; }

  @Override List<String> addedColumns() { return List.of("_score", "_text_score", "_distance"); }

  @Override void addArguments(ObjectNode arguments) { arguments.put("hybrid", true); }
}
