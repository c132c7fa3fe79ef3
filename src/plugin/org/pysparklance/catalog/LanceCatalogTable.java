package org.pysparklance.catalog;

import java.util.*;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.compat.CallStack;
import org.pysparklance.python.Description;
import org.pysparklance.python.Python;
import org.pysparklance.read.LanceScanBuilder;

/**
 * A table of a catalog: with the declarations of its columns (defaults, NOT NULL, lengths,
 * comments), its properties, and columns that a statement may add.
 */
public class LanceCatalogTable extends LanceTable {
  /** A capability that some releases of Spark lack. */
  private static final Set<TableCapability> SCHEMA_EVOLUTION =
      Arrays.stream(TableCapability.values())
      .filter(one -> one.name().equals("AUTOMATIC_SCHEMA_EVOLUTION")).collect(Collectors.toSet());

  private final String name;
  private final Map<String, String> properties;

  /**
   * @param properties further properties of the catalog, such as the location
   * @param found the version; null if there is none yet
   * @param schema the columns, if there is no version
   */
  public LanceCatalogTable(String name, CaseInsensitiveStringMap options,
      Map<String, String> properties,
      Description found, StructType schema) {
    super(options, found == null ? schema : found.declaredSchema(), found, true);
    this.name = name;
    this.properties = new TreeMap<>(properties);
    this.properties.put(TableCatalog.PROP_PROVIDER, "lance");
    if (found != null) {
      this.properties.putAll(found.properties());
    }
  }

  /** Equal tables have the same rows: Spark 4.0 looks up by them what is cached. */
  @Override public boolean equals(Object other) {
    return other instanceof LanceCatalogTable table && table.getClass() == getClass()
        && name.equals(table.name) && options().equals(table.options()) && hasSameVersion(table);
  }

  @Override public int hashCode() { return name.hashCode(); }

  /** Whether {@code USING} with this provider creates a Lance table. */
  public static boolean isProvider(String provider) {
    return provider.equalsIgnoreCase("lance") || provider.equals("org.pysparklance.LanceSource");
  }

  public static String nameOf(String catalog, Identifier ident) {
    List<String> parts = new ArrayList<>(List.of(catalog));
    parts.addAll(List.of(ident.namespace()));
    parts.add(ident.name());
    return parts.stream()
        .map(one -> one.matches("\\w+") ? one : "`" + one.replace("`", "``") + "`")
        .collect(Collectors.joining("."));
  }

  @Override public String name() { return name; }

  @Override public Map<String, String> properties() { return properties; }

  /**
   * The columns. Statements {@code WITH SCHEMA EVOLUTION} compare those of {@code CHAR(n)} and
   * {@code VARCHAR(n)} with strings, so they get what a query does: strings that remember the type.
   */
  @Override public Column[] columns() {
    StructType declared = schema();
    return CharVarcharUtils.hasCharVarchar(declared) && CallStack.isSchemaEvolution()
        ? new SchemaColumns(
            CharVarcharUtils.replaceCharVarcharWithStringInSchema(declared)).columns()
        : super.columns();
  }

  /** The table as the statement that creates it: its declared types, and its options. */
  public LanceCatalogTable asCreateStatement() {
    Description found = loadDescription();
    if (found == null) {
      return this;
    }
    Map<String, String> all = newTableOptions(options());
    all.putAll(properties);
    return new LanceCatalogTable(name, options(), all, found, null) {
      @Override public Column[] columns() {
        return new SchemaColumns(found.writeSchema()).columns();
      }
    };
  }

  /** The table whose scans report the statistics of columns, whether or not Spark plans by them. */
  public LanceCatalogTable withStatistics() {
    return new LanceCatalogTable(name, options(), properties, loadDescription(), schema()) {
      @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap scanOptions) {
        ScanBuilder builder = super.newScanBuilder(scanOptions);
        return builder instanceof LanceScanBuilder lance ? lance.withStatistics() : builder;
      }
    };
  }

  /** Columns by their types: the method that makes them differs between releases of Spark. */
  private record SchemaColumns(StructType schema) implements Table {
    @Override public String name() { return ""; }

    @Override public Set<TableCapability> capabilities() { return Set.of(); }
  }

  /** The properties by which a new table gets the files and column types of an existing one. */
  public static Map<String, String> newTableOptions(CaseInsensitiveStringMap table) {
    return Python.newTableOptions(table);
  }

  @Override public Constraint[] constraints() {
    Description found = loadDescription();
    return PrimaryKeys.of(found == null ? List.of() : found.primaryKey());
  }

  @Override public Transform[] partitioning() {
    Description found = loadDescription();
    return ClusteringColumns.of(found == null ? List.of() : found.clusterBy());
  }

  @Override protected boolean readsNewestVersion() { return true; }

  @Override public StructType read(Description found) { return found.schema(); }

  @Override public Set<TableCapability> capabilities() {
    Set<TableCapability> all = EnumSet.copyOf(super.capabilities());
    all.addAll(SCHEMA_EVOLUTION);
    return all;
  }
}
