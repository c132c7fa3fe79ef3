package org.pysparklance.catalog;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Table;
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

  /**
   * The definition of {@code CREATE TABLE … LIKE}: the columns of {@code source}; if that is a Lance
   * table, also its clustering columns, primary key, column types of Lance, properties and comment.
   *
   * @param given what the statement says itself: location and properties, which win
   */
  public static NewTable like(TableInfo given, Table source) {
    if (!(source instanceof NamedTable named)) {
      return new NewTable(source.columns(), new Transform[0], given.properties(), List.of());
    }
    NamedTable statement = named.asStatement();
    Map<String, String> properties = StagedLanceTable.kept(statement.properties());
    properties.putAll(given.properties());
    return new NewTable(statement.columns(), named.partitioning(), properties,
        List.of(named.constraints()));
  }
}
