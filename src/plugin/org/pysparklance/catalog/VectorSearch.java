package org.pysparklance.catalog;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.spark.sql.Column;

/**
 * {@code SELECT * FROM vector_search('/data/t', array(0.5, 1.5), 10)}: a read with the option
 * {@code nearest}. Tasks give the nearest of their rows, Spark of all.
 */
final class VectorSearch extends SearchFunction {
  VectorSearch() {
    super("vector_search", List.of("table", "query_vector", "num_results"), "nearest",
        "_distance", "nprobes => 20",
        "for the vectors of rows use LanceTable.nearest");
  }

  @Override Column order(Column score) { return score; }

  @Override boolean isSingleQuery(ObjectNode arguments) {
    return !arguments.path("query_vector").path(0).isArray();
  }
}
