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
import org.pysparklance.python.Creation;
import org.pysparklance.python.Description;
import org.pysparklance.python.Options;
import org.pysparklance.python.PredicateJson;
import org.pysparklance.python.Python;
import org.pysparklance.python.Running;
import org.pysparklance.read.LanceScan;
import org.pysparklance.read.LanceScanBuilder;
import org.pysparklance.write.LanceWrite;
import org.pysparklance.write.RowChange;
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
  private final boolean follows;
  private Description described;
  private String foundFor;

  /**
   * @param described the version to read; null to resolve it when it is needed
   * @param mayBeMissing whether the table may not exist yet, which reads as an empty table
   */
  public LanceTable(CaseInsensitiveStringMap options, StructType schema, Description described,
      boolean mayBeMissing) {
    this(options, schema, described, mayBeMissing, false);
  }

  /** With {@code follows}, as for a view, every query reads the newest version. */
  public LanceTable(CaseInsensitiveStringMap options, StructType schema, Description described,
      boolean mayBeMissing, boolean follows) {
    this.options = options;
    this.schema = schema;
    this.described = described;
    this.mayBeMissing = mayBeMissing;
    this.follows = follows && !Options.isOfThePast(options);
  }

  @Override public CaseInsensitiveStringMap options() { return options; }

  @Override public Creation creation() { return null; }

  /** Whether a write with these options changes the rows that this table shows. */
  public boolean shows(CaseInsensitiveStringMap written) {
    return followsTable() && !Options.isOfThePast(options)
        && Options.isSamePath(options.getOrDefault("path", ""), written.getOrDefault("path", ""))
        && branch(options).equals(branch(written));
  }

  /** Whether each query reads the newest version, as for a view or a name, but not a DataFrame. */
  protected boolean followsTable() { return follows; }

  private static String branch(CaseInsensitiveStringMap given) {
    return given.getOrDefault("branch", "main");
  }

  /** All scans of one query see the same version. */
  private synchronized Description newest() {
    String running = follows ? Running.id() : null;
    if (follows && (running == null || !running.equals(foundFor))) {
      described = null;
      foundFor = running;
    }
    return described();
  }

  /** The columns of the schema that Spark shows. */
  @Override public StructType read(Description found) { return schema; }

  @Override public synchronized Description described() {
    if (described == null) {
      described = mayBeMissing ? Python.find(options) : Python.describe(options);
    }
    return described;
  }

  /** Whether both show the same version, or neither a known one. */
  protected boolean showsVersionOf(LanceTable other) {
    Description one = known();
    Description two = other.known();
    return one == null || two == null ? one == two
        : one.version().equals(two.version()) && Objects.equals(one.base(), two.base());
  }

  private synchronized Description known() { return described; }

  /** Makes the next scan see the newest version. */
  @Override public synchronized void forgetVersion() { described = null; }

  /** Makes the next scan, and cached relations, see the version that this object committed. */
  @Override public void onCommitted() {
    forgetVersion();
    CachedTables.refresh(options);
  }

  @Override public String name() { return "lance.`" + options.getOrDefault("path", "") + "`"; }

  @Override public StructType schema() { return schema; }

  @Override public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ, TableCapability.BATCH_WRITE,
        TableCapability.MICRO_BATCH_READ, TableCapability.STREAMING_WRITE,
        TableCapability.TRUNCATE, TableCapability.OVERWRITE_BY_FILTER,
        TableCapability.OVERWRITE_DYNAMIC);
  }

  /** Without columns that options add: Spark 4.1 resolves columns of streams by position. */
  private StructType shown(StructType columns) {
    List<String> names = List.of(schema.fieldNames());
    return new StructType(Arrays.stream(columns.fields())
        .filter(one -> names.contains(one.name())).toArray(StructField[]::new));
  }

  @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap more) {
    CaseInsensitiveStringMap all = Options.merge(options, more);
    Description found = all.equals(options) ? newest() : Python.describe(all);
    return found != null ? new LanceScanBuilder(found, shown(read(found)), all)
        : () -> new LanceScan.LocalRows(schema, new InternalRow[0], "lance, no rows yet");
  }

  @Override public LanceWrite newWriteBuilder(LogicalWriteInfo info) {
    CaseInsensitiveStringMap all = Options.merge(options, info.options());
    return new LanceWrite(this, all, info, described);
  }

  /** The columns with blobs, and the types that writes accept for them. */
  public Map<String, DataType> blobs() {
    Description found = described();
    return found == null ? Map.of() : found.blobs();
  }

  /** The table, reading some more blob columns as binary. */
  public LanceTable withBytes(List<String> columns) {
    Description found = newest().withBytes(columns);
    String before = options.getOrDefault("blobColumns", "");
    String all = Stream.concat(
        columns.stream().map(one -> "`" + one.replace("`", "``") + "`"),
        Stream.of(before).filter(one -> !one.isBlank())).collect(Collectors.joining(","));
    LanceTable table = new LanceTable(
        Options.with(options, "blobColumns", all), shown(found.schema()), found, false, followsTable());
    table.foundFor = foundFor;
    return table;
  }

  @Override public MetadataColumn[] metadataColumns() {
    Description found = described();
    return found == null ? new MetadataColumn[0] : found.lineage().stream()
        .map(LineageColumn::new).toArray(MetadataColumn[]::new);
  }

  @Override public boolean canRenameConflictingMetadataColumns() { return true; }

  @Override public boolean canDeleteWhere(Predicate[] predicates) {
    Description found = newest();
    boolean all = Arrays.stream(predicates).allMatch(AlwaysTrue.class::isInstance);
    return found == null || (all || Math.abs(found.rows()) <= SMALL_ROW_COUNT)
        && new PredicateJson(found).all(predicates) != null;
  }

  @Override public void deleteWhere(Predicate[] predicates) {
    Description found = newest();
    if (found != null) {
      Python.delete(options, new PredicateJson(found).all(predicates),
          Arrays.stream(predicates).map(Predicate::toString).collect(Collectors.joining(" AND ")));
      onCommitted();
    }
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    if (Options.isOfThePast(options)) {
      throw new UnsupportedOperationException(
          "[LANCE_INVALID_INPUT] an older version of a table cannot be changed\n  hint: leave out "
              + String.join(", ", Options.OF_THE_PAST));
    }
    if (described() == null || described().lineage().isEmpty()) {  // Python refuses the latter
      Python.create(options, schema, Creation.PLAIN);
    }
    Description found = described();
    return () -> new RowChange(this, found, info.command());
  }

  @Override public void createIndex(String name, NamedReference[] columns,
      Map<NamedReference, Map<String, String>> ofColumns, Map<String, String> properties) {
    TableIndices.create(this, name, columns, ofColumns, properties);
  }

  @Override public void dropIndex(String name) { TableIndices.drop(this, name); }

  @Override public boolean indexExists(String name) { return TableIndices.has(this, name); }

  @Override public TableIndex[] listIndexes() { return TableIndices.all(this); }

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
