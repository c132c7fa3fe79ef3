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
public record TableDefinition(Column[] columns, Transform[] partitions,
    Map<String, String> properties,
    List<Constraint> constraints) {
  public static TableDefinition of(TableInfo table) {
    return new TableDefinition(table.columns(), table.partitions(), table.properties(),
        List.of(table.constraints()));
  }

  public static TableDefinition of(
      Column[] columns, Transform[] partitions, Map<String, String> properties) {
    return new TableDefinition(columns, partitions, properties, List.of());
  }

  /**
   * The definition of {@code CREATE TABLE … LIKE}: the columns of {@code source}; if that is a
   * Lance table, also its clustering columns, primary key, column types of Lance, properties and comment.
   *
   * @param statement the location and properties of the statement, which take precedence
   */
  public static TableDefinition like(TableInfo statement, Table source) {
    if (!(source instanceof LanceCatalogTable lanceTable)) {
      return new TableDefinition(source.columns(), new Transform[0], statement.properties(),
          List.of());
    }
    LanceCatalogTable sourceTable = lanceTable.asCreateStatement();
    Map<String, String> properties = StagedLanceTable.storedProperties(sourceTable.properties());
    properties.putAll(statement.properties());
    return new TableDefinition(sourceTable.columns(), lanceTable.partitioning(), properties,
        List.of(lanceTable.constraints()));
  }
}
