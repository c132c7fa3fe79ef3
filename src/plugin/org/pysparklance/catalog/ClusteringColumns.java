package org.pysparklance.catalog;

import java.util.*;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.*;
import org.pysparklance.python.Description;
import org.pysparklance.python.Options;
import scala.jdk.javaapi.CollectionConverters;

/**
 * {@code CLUSTER BY}, the only partitioning of Spark that Lance tables have. Compactions sort rows
 * by these columns.
 */
public final class ClusteringColumns {
  private static final String OPTION = "_lance.cluster_by";
  /** The option of {@code df.write.clusterBy} for V1 sources. */
  private static final String SAVE_OPTION = "__clustering_columns";

  private ClusteringColumns() {}

  /** The clustering columns of a new or replaced table; null to keep the current ones. */
  static List<String> of(TableDefinition table, boolean replaces) {
    List<String> names = clusteringColumns(table.partitions());
    return names.isEmpty() && !replaces ? null : names;
  }

  /** The columns of CLUSTER BY; none without it. */
  private static List<String> clusteringColumns(Transform[] partitions) {
    // By this name, since SHOW CREATE TABLE of Spark says PARTITIONED BY (cluster_by(…)).
    refusePartitioning(
        Arrays.stream(partitions).anyMatch(one -> !one.name().equals("cluster_by")));
    return partitions.length == 0 ? List.of() : namesOf(partitions[0].references());
  }

  /** Refuses a table with partitions or buckets, before it is registered. */
  public static void check(TableDefinition table) { clusteringColumns(table.partitions()); }

  /**
   * The same for a save, and for a table in Spark's own catalog, which would store the columns of
   * CLUSTER BY itself.
   */
  public static void check(Transform[] partitions, boolean inCatalog) {
    if (!clusteringColumns(partitions).isEmpty() && inCatalog) {
      throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] Spark's own catalog "
          + "does not pass CLUSTER BY to Lance tables\n  hint: set "
          + "spark.sql.catalog.spark_catalog = org.pysparklance.LanceSessionCatalog, or leave out "
          + "CLUSTER BY and call LanceTable.clusterBy");
    }
  }

  /** Refuses partitions and buckets. */
  public static void refusePartitioning(boolean isPartitioned) {
    if (isPartitioned) {
      throw new UnsupportedOperationException(
          "[LANCE_UNSUPPORTED_FEATURE] Lance tables have no partitions and no buckets; leave out "
              + "PARTITIONED BY, CLUSTERED BY, partitionBy and bucketBy\n  hint: use CLUSTER BY (…) or "
              + "clusterBy, by which compact() sorts the rows; for joins without a shuffle, run "
              + "compact with splitFilesBy, which gives each value files of its own; for buckets, "
              + "store a column such as pmod(hash(id), 16)");
    }
  }

  /** Options of a save, with its columns in the same option as for other writes. */
  public static void moveSaveOption(Map<String, String> options) {
    for (String key : List.copyOf(options.keySet())) {
      if (key.equalsIgnoreCase(SAVE_OPTION)) {
        options.put(OPTION, options.remove(key));
      }
    }
    refusePartitioning(options.keySet().stream().anyMatch(key -> key.startsWith("__")));
  }

  /** The names of columns, and of fields of structs with dots. */
  static List<String> namesOf(NamedReference[] columns) {
    return Arrays.stream(columns).map(column -> String.join(".", column.fieldNames())).toList();
  }

  /** The transforms of a table that is clustered by some columns. */
  static Transform[] of(List<String> columns) {
    if (columns.isEmpty()) {
      return new Transform[0];
    }
    List<NamedReference> references = columns.stream().map(ClusteringColumns::reference).toList();
    return new Transform[] {
        new ClusterByTransform(CollectionConverters.asScala(references).toSeq())};
  }

  private static NamedReference reference(String name) {
    return Expressions.column(Arrays.stream(name.split("[.]"))
        .map(part -> "`" + part.replace("`", "``") + "`").collect(Collectors.joining(".")));
  }

  /** Refuse CLUSTER BY for an existing table that is only registered: it would be ignored. */
  public static void checkSame(Description existing, Transform[] partitions) {
    List<String> names = clusteringColumns(partitions);
    if (!names.isEmpty() && !names.equals(existing.clusterBy())) {
      throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the table already exists, "
          + "which is not clustered by these columns\n  at: " + existing.root()
          + "\n  hint: leave out CLUSTER BY, then ALTER TABLE … CLUSTER BY");
    }
  }
}
