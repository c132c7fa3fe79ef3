package org.pysparklance.catalog;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.spark.sql.Column;

/** {@code SELECT * FROM search('/data/t', 'lazy dog', 10)}: a read with the option search. */
final class TextSearch extends SearchFunction {
  TextSearch() {
    super("search", List.of("table", "query", "num_results"), "search", "_score",
        "operator => 'and'",
        "for the texts of rows call LanceTable.search for each");
  }

  @Override Column order(Column score) { return score.desc(); }

  @Override boolean isSingleQuery(ObjectNode arguments) { return true; }
}
