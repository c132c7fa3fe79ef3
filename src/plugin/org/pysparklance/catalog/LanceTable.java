package org.pysparklance.catalog;

import java.util.*;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.catalog.index.*;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.AlwaysTrue;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.ActiveQuery;
import org.pysparklance.python.Description;
import org.pysparklance.python.Options;
import org.pysparklance.python.PredicateJson;
import org.pysparklance.python.Python;
import org.pysparklance.python.TableCreation;
import org.pysparklance.read.LanceScan;
import org.pysparklance.read.LanceScanBuilder;
import org.pysparklance.write.LanceRowLevelOperation;
import org.pysparklance.write.LanceWrite;
import org.pysparklance.write.WriteTarget;

/**
 * A table in a query, a view or a catalog. All scans read the version that was the newest when the
 * query was analysed, until a command writes through this object.
 */
public class LanceTable
    implements SupportsRead, SupportsWrite, SupportsMetadataColumns, SupportsDeleteV2,
    SupportsRowLevelOperations, SupportsIndex, WriteTarget {
  /** Up to this many rows, Python deletes rows on the driver, which is faster than a job. */
  private static final long SMALL_ROW_COUNT = 2_000_000;

  private final CaseInsensitiveStringMap options;
  private final StructType schema;
  private final boolean mayBeMissing;
  private final boolean readsNewest;
  private Description description;
  private String executionId;

  /**
   * @param description the version to read; null to resolve it when it is needed
   * @param mayBeMissing whether the table may not exist yet, which reads as an empty table
   */
  public LanceTable(CaseInsensitiveStringMap options, StructType schema, Description description,
      boolean mayBeMissing) {
    this(options, schema, description, mayBeMissing, false);
  }

  /** With {@code readsNewest}, as for a view, every query reads the newest version. */
  public LanceTable(CaseInsensitiveStringMap options, StructType schema, Description description,
      boolean mayBeMissing, boolean readsNewest) {
    this.options = options;
    this.schema = schema;
    this.description = description;
    this.mayBeMissing = mayBeMissing;
    this.readsNewest = readsNewest && !Options.isTimeTravel(options);
  }

  @Override public CaseInsensitiveStringMap options() { return options; }

  @Override public TableCreation creation() { return null; }

  /** Whether a write with these options changes the rows that this table shows. */
  public boolean isChangedBy(CaseInsensitiveStringMap writeOptions) {
    return readsNewestVersion() && !Options.isTimeTravel(options)
        && Options.isSamePath(options.getOrDefault("path", ""),
        writeOptions.getOrDefault("path", ""))
        && branch(options).equals(branch(writeOptions));
  }

  /** Whether each query reads the newest version, as for a view or a name, but not a DataFrame. */
  protected boolean readsNewestVersion() { return readsNewest; }

  private static String branch(CaseInsensitiveStringMap options) {
    return options.getOrDefault("branch", "main");
  }

  /** All scans of one query see the same version. */
  private synchronized Description loadNewest() {
    String execution = readsNewest ? ActiveQuery.executionId() : null;
    if (readsNewest && (execution == null || !execution.equals(executionId))) {
      description = null;
      executionId = execution;
    }
    return loadDescription();
  }

  /** The columns of the schema that Spark shows. */
  @Override public StructType read(Description found) { return schema; }

  @Override public synchronized Description loadDescription() {
    if (description == null) {
      description = mayBeMissing ? Python.find(options) : Python.describe(options);
    }
    return description;
  }

  /** Whether both show the same version, or neither a known one. */
  protected boolean hasSameVersion(LanceTable other) {
    Description version = cachedDescription();
    Description otherVersion = other.cachedDescription();
    return version == null || otherVersion == null ? version == otherVersion
        : version.version().equals(otherVersion.version())
        && Objects.equals(version.base(), otherVersion.base());
  }

  private synchronized Description cachedDescription() { return description; }

  /** Makes the next scan see the newest version. */
  @Override public synchronized void forgetVersion() { description = null; }

  /** Makes the next scan, and cached relations, see the version that this object committed. */
  @Override public void onCommitted() {
    forgetVersion();
    CachedTables.refresh(options);
  }

  @Override public String name() { return "lance.`" + options.getOrDefault("path", "") + "`"; }

  /** As {@code EXPLAIN} shows it. */
  @Override public String toString() { return name(); }

  @Override public StructType schema() { return schema; }

  @Override public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ, TableCapability.BATCH_WRITE,
        TableCapability.MICRO_BATCH_READ, TableCapability.STREAMING_WRITE,
        TableCapability.TRUNCATE, TableCapability.OVERWRITE_BY_FILTER,
        TableCapability.OVERWRITE_DYNAMIC);
  }

  /** Without columns that options add: Spark 4.1 resolves columns of streams by position. */
  private StructType pruneToSchema(StructType columns) {
    List<String> names = List.of(schema.fieldNames());
    return new StructType(Arrays.stream(columns.fields())
        .filter(one -> names.contains(one.name())).toArray(StructField[]::new));
  }

  @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap scanOptions) {
    CaseInsensitiveStringMap all = Options.merge(options, scanOptions);
    if (Options.isChangeFeed(all) && !Options.isChangeFeed(options)) {
      throw new UnsupportedOperationException(
          "[LANCE_UNSUPPORTED_FEATURE] readChangeFeed needs the path of a table: for its name, "
              + "Spark has resolved the columns already, without those of the change feed\n  at: "
              + name() + "\n  hint: format(\"lance\").option(\"readChangeFeed\", \"true\").load(path); "
              + "or by name LanceTable.forName(spark, name).changes(1), and since Spark 4.2 "
              + "spark.read.changes(name) or spark.readStream.changes(name)");
    }
    Description found = all.equals(options) ? loadNewest() : Python.describe(all);
    return found != null ? new LanceScanBuilder(found, pruneToSchema(read(found)), all)
        : () -> new LanceScan.LocalRows(schema, new InternalRow[0], "lance, no rows yet");
  }

  @Override public LanceWrite newWriteBuilder(LogicalWriteInfo info) {
    CaseInsensitiveStringMap all = Options.merge(options, info.options());
    return new LanceWrite(this, all, info, description);
  }

  /** The columns with blobs, and the types that writes accept for them. */
  public Map<String, DataType> blobs() {
    Description found = loadDescription();
    return found == null ? Map.of() : found.blobs();
  }

  /** The table, reading some more blob columns as binary. */
  public LanceTable withBinaryBlobs(List<String> columns) {
    Description found = loadNewest().withBinaryBlobs(columns);
    String blobColumns = options.getOrDefault("blobColumns", "");
    String all = Stream.concat(
        columns.stream().map(one -> "`" + one.replace("`", "``") + "`"),
        Stream.of(blobColumns).filter(one -> !one.isBlank())).collect(Collectors.joining(","));
    LanceTable table = new LanceTable(
        Options.with(options, "blobColumns", all), pruneToSchema(found.schema()), found, false,
        readsNewestVersion());
    table.executionId = executionId;
    return table;
  }

  @Override public MetadataColumn[] metadataColumns() {
    Description found = loadDescription();
    return found == null ? new MetadataColumn[0] : found.lineageColumns().stream()
        .map(LineageColumn::new).toArray(MetadataColumn[]::new);
  }

  @Override public boolean canRenameConflictingMetadataColumns() { return true; }

  @Override public boolean canDeleteWhere(Predicate[] predicates) {
    Description found = loadNewest();
    boolean isTruncate = Arrays.stream(predicates).allMatch(AlwaysTrue.class::isInstance);
    return found == null || (isTruncate || Math.abs(found.rows()) <= SMALL_ROW_COUNT)
        && new PredicateJson(found).all(predicates) != null;
  }

  @Override public void deleteWhere(Predicate[] predicates) {
    Description found = loadNewest();
    if (found != null) {
      Python.delete(options, new PredicateJson(found).all(predicates),
          Arrays.stream(predicates).map(Predicate::toString).collect(Collectors.joining(" AND ")));
      onCommitted();
    }
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    if (Options.isTimeTravel(options)) {
      throw new UnsupportedOperationException(
          "[LANCE_INVALID_INPUT] an older version of a table cannot be changed\n  hint: leave out "
              + String.join(", ", Options.TIME_TRAVEL));
    }
    // Python refuses a table without lineage columns.
    if (loadDescription() == null || loadDescription().lineageColumns().isEmpty()) {
      Python.create(options, schema, TableCreation.PLAIN);
    }
    Description found = loadDescription();
    return () -> new LanceRowLevelOperation(this, found, info.command());
  }

  @Override public void createIndex(String name, NamedReference[] columns,
      Map<NamedReference, Map<String, String>> columnProperties, Map<String, String> properties) {
    TableIndices.create(this, name, columns, columnProperties, properties);
  }

  @Override public void dropIndex(String name) { TableIndices.drop(this, name); }

  @Override public boolean indexExists(String name) { return TableIndices.has(this, name); }

  @Override public TableIndex[] listIndexes() { return TableIndices.list(this); }

  /** A hidden column that {@code SELECT *} leaves out. */
  record LineageColumn(String name) implements MetadataColumn {
    @Override public DataType dataType() { return DataTypes.LongType; }

    @Override public boolean isNullable() { return false; }

    /** Marks a column of this name as one that our reader returned. */
    @Override public String metadataInJSON() {
      return "{\"lance.system_column\":\"" + name + "\"}";
    }
  }
}
