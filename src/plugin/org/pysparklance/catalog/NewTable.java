package org.pysparklance.catalog;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.expressions.Transform;

/**
 * The definition of a new table. Spark passes a {@code TableInfo} since 4.1; in 4.0, which lacks
 * that class and constraints, it passes the parts.
 */
public record NewTable(Column[] columns, Transform[] partitions, Map<String, String> properties,
    List<Constraint> constraints) {
  public static NewTable of(TableInfo table) {
    return new NewTable(table.columns(), table.partitions(), table.properties(),
        List.of(table.constraints()));
  }

  public static NewTable of(
      Column[] columns, Transform[] partitions, Map<String, String> properties) {
    return new NewTable(columns, partitions, properties, List.of());
  }
}
