package org.pysparklance;

import java.net.URI;
import java.util.*;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.*;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.catalog.AlterTable;
import org.pysparklance.catalog.CachedTables;
import org.pysparklance.catalog.ClusteringColumns;
import org.pysparklance.catalog.LanceCatalogTable;
import org.pysparklance.catalog.LanceChangelog;
import org.pysparklance.catalog.LanceProcedure;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.catalog.PrimaryKeys;
import org.pysparklance.catalog.SessionCatalogs;
import org.pysparklance.catalog.StagedForeignTable;
import org.pysparklance.catalog.StagedLanceTable;
import org.pysparklance.catalog.TableDefinition;
import org.pysparklance.compat.Releases;
import org.pysparklance.python.Description;
import org.pysparklance.python.Options;
import org.pysparklance.python.PathUri;
import org.pysparklance.python.Python;
import org.pysparklance.python.TableRequest;
import org.pysparklance.rules.SessionRules;
import scala.Option;

/**
 * Spark's own catalog, {@code spark.sql.catalog.spark_catalog}: a table {@code USING lance} in it
 * is one Lance table, created and replaced in one version each, whose columns and properties are
 * those of the newest version. Tables of other sources are delegated to Spark's catalog.
 */
public class LanceSessionCatalog extends DelegatingCatalogExtension
    implements StagingTableCatalog, LanceProcedure.Catalog {
  @Override public void initialize(String name, CaseInsensitiveStringMap options) {}

  /** Spark's name, since plans of other sources show the catalog. */
  @Override public String toString() { return "V2SessionCatalog(" + name() + ")"; }

  @Override public Set<TableCatalogCapability> capabilities() {
    Set<TableCatalogCapability> all = new HashSet<>(super.capabilities());
    Releases.addConstraints(all);
    return all;
  }

  private static boolean isLance(TableDefinition table) {
    return LanceCatalogTable.isProvider(table.properties().getOrDefault(
        TableCatalog.PROP_PROVIDER, SQLConf.get().defaultDataSourceName()));
  }

  /** The catalog's entry of a Lance table; null for other tables and views. */
  private V1Table lanceTable(Identifier ident) throws NoSuchTableException {
    return lanceTable(SessionCatalogs.loadFromMetastore(() -> super.loadTable(ident)));
  }

  private static V1Table lanceTable(Table table) {
    if (table instanceof V1Table v1Table
        && LanceCatalogTable.isProvider(v1Table.catalogTable().provider().getOrElse(() -> ""))) {
      SessionRules.addToSession();
      return v1Table;
    }
    return null;
  }

  @Override public Table loadTable(Identifier ident) throws NoSuchTableException {
    Table table = SessionCatalogs.loadFromMetastore(() -> super.loadTable(ident));
    V1Table v1Table = lanceTable(table);
    return v1Table != null ? load(ident, v1Table, Map.of())
        : SessionCatalogs.hasSource(table)
            ? SessionCatalogs.loadFromSource(() -> super.loadTable(ident))
        : table;
  }

  @Override public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    V1Table v1Table = lanceTable(ident);
    return v1Table == null ? super.loadTable(ident, version)
        : load(ident, v1Table, Options.versionOption(version));
  }

  @Override public Table loadTable(Identifier ident, long micros) throws NoSuchTableException {
    V1Table v1Table = lanceTable(ident);
    return v1Table == null ? super.loadTable(ident, micros)
        : load(ident, v1Table, Map.of("timestampAsOf", Options.formatTimestamp(micros)));
  }

  /** Since Spark 4.2; the class also loads in older releases, which lack the types. */
  public Changelog loadChangelog(Identifier ident, ChangelogContext context,
      CaseInsensitiveStringMap scanOptions) throws NoSuchTableException {
    V1Table v1Table = lanceTable(ident);
    if (v1Table == null) {
      throw new UnsupportedOperationException(ident + " is no Lance table and has no changes");
    }
    CaseInsensitiveStringMap readOptions =
        Options.merge(optionsOf(v1Table), LanceChangelog.options(context, scanOptions));
    Description found = Python.describe(readOptions);
    return LanceChangelog.of(new LanceTable(readOptions, found.schema(), found, false));
  }

  /** Since 4.3: the options that {@code loadChangelog} needs; all of them reach the scan. */
  public Set<String> changelogStateOptionKeys() { return Set.of("branch", "blobColumns"); }

  private static CaseInsensitiveStringMap optionsOf(V1Table v1Table) {
    return Options.ofTable(new CaseInsensitiveStringMap(v1Table.properties()));
  }

  private LanceCatalogTable load(Identifier ident, V1Table v1Table, Map<String, String> overrides) {
    CaseInsensitiveStringMap readOptions = Options.merge(optionsOf(v1Table), overrides);
    Description found = Python.find(readOptions);
    Map<String, String> tableProperties = new HashMap<>(v1Table.properties());
    // An existing table has its own properties.
    tableProperties.keySet().removeIf(name -> name.startsWith(TableCatalog.OPTION_PREFIX)
        || found != null && !CatalogV2Util.TABLE_RESERVED_PROPERTIES().contains(name));
    if (v1Table.catalogTable().tableType().equals(CatalogTableType.MANAGED())) {
      tableProperties.put(TableCatalog.PROP_IS_MANAGED_LOCATION, "true");
    }
    return new LanceCatalogTable(
        LanceCatalogTable.nameOf(name(), ident), readOptions, tableProperties, found,
        v1Table.schema());
  }

  @Override public Table createTable(Identifier ident, TableInfo table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return createTable(ident, TableDefinition.of(table));
  }

  @Override public StagedTable stageCreate(Identifier ident, TableInfo table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return stageCreate(ident, TableDefinition.of(table));
  }

  @Override public StagedTable stageReplace(Identifier ident, TableInfo table)
      throws NoSuchNamespaceException, NoSuchTableException {
    return replace(ident, TableDefinition.of(table));
  }

  @Override public StagedTable stageCreateOrReplace(Identifier ident, TableInfo table)
      throws NoSuchNamespaceException {
    return createOrReplace(ident, TableDefinition.of(table));
  }

  // Spark 4.0 calls these four.

  @Override public Table createTable(Identifier ident, Column[] columns, Transform[] partitions,
      Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return createTable(ident, TableDefinition.of(columns, partitions, properties));
  }

  @Override public StagedTable stageCreate(Identifier ident, Column[] columns,
      Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return stageCreate(ident, TableDefinition.of(columns, partitions, properties));
  }

  @Override public StagedTable stageReplace(Identifier ident, Column[] columns,
      Transform[] partitions, Map<String, String> properties)
      throws NoSuchNamespaceException, NoSuchTableException {
    return replace(ident, TableDefinition.of(columns, partitions, properties));
  }

  @Override public StagedTable stageCreateOrReplace(Identifier ident, Column[] columns,
      Transform[] partitions, Map<String, String> properties) throws NoSuchNamespaceException {
    return createOrReplace(ident, TableDefinition.of(columns, partitions, properties));
  }

  private Table createTable(Identifier ident, TableDefinition table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (!isLance(table)) {
      PrimaryKeys.refuseForeignConstraints(!table.constraints().isEmpty(), ident);
      return super.createTable(
          ident, table.columns(), table.partitions(), table.properties());
    }
    return create(ident, table.columns(), table);
  }

  private Table create(Identifier ident, Column[] columns, TableDefinition table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    ClusteringColumns.check(table);
    Map<String, String> properties = table.properties();
    Map<String, String> entry = entry(ident, properties);
    Description existing = Python.find(Options.ofTable(new CaseInsensitiveStringMap(entry)));
    if (existing != null) {
      checkProperties(existing, properties, entry);
      PrimaryKeys.checkSame(existing, table.constraints());
      ClusteringColumns.checkSame(existing, table.partitions());
    }
    CaseInsensitiveStringMap options = register(ident, columns, entry);
    if (existing == null) {
      StagedLanceTable staged = new StagedLanceTable(
          options, columns, table, false, () -> {}, () -> dropTable(ident));
      try {
        staged.commitStagedChanges();
      } catch (Exception error) {  // those of Scala are none of the kinds that Java declares
        staged.abortStagedChanges();
        throw error;
      }
    }
    return null;  // which saves finding the table
  }

  /** Refuse properties for an existing table that is only registered: they would be ignored. */
  private static void checkProperties(
      Description existing, Map<String, String> properties, Map<String, String> entry) {
    Map<String, String> storedProperties = StagedLanceTable.storedProperties(properties);
    // SHOW CREATE TABLE prints the options of the table, too.
    if (!existing.properties().entrySet().containsAll(storedProperties.entrySet())) {
      storedProperties.entrySet().removeAll(LanceCatalogTable.newTableOptions(
          Options.ofTable(new CaseInsensitiveStringMap(entry))).entrySet());
    }
    storedProperties.forEach((name, value) -> {
      boolean isComment = name.equals(TableCatalog.PROP_COMMENT);
      if (!isComment && !value.equals(existing.properties().get(name))) {
        throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the table already exists, "
            + "without the property " + name + " = " + value + "\n  at: " + existing.root()
            + "\n  hint: leave out TBLPROPERTIES, then ALTER TABLE … SET TBLPROPERTIES");
      }
    });
  }

  /** Since Spark 4.3, for DataSource V2; older releases never call it. */
  public Table createTableLike(Identifier ident, TableInfo table, Table source)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (!(source instanceof LanceCatalogTable) && !isLance(TableDefinition.of(table))) {
      throw new UnsupportedOperationException("CREATE TABLE LIKE " + source.name());
    }
    TableDefinition like = TableDefinition.like(table, source);
    return create(ident, like.columns(), like);
  }

  /** A location as Spark resolves it: a relative one is in the folder of the database. */
  private static String resolveLocation(Identifier ident, String location) {
    if (location.startsWith("/") || !PathUri.scheme(location).isEmpty()) {
      return location;
    }
    URI database = SparkSession.active().sessionState().catalog()
        .getDatabaseMetadata(ident.namespace()[0]).locationUri();
    return new Path(new Path(database), new Path(null, null, location)).toString();
  }

  /** The entry of a new table in the catalog, with its location. */
  private static Map<String, String> entry(Identifier ident, Map<String, String> tableProperties) {
    Map<String, String> properties = new HashMap<>(tableProperties);
    properties.put(TableCatalog.PROP_PROVIDER, "lance");
    String path = properties.remove(TableCatalog.OPTION_PREFIX + "path");
    if (path != null) {
      properties.putIfAbsent(TableCatalog.PROP_LOCATION, path);
    }
    properties.computeIfPresent(TableCatalog.PROP_LOCATION,
        (name, location) -> resolveLocation(ident, location));
    if (!properties.containsKey(TableCatalog.PROP_LOCATION)) {
      TableIdentifier name = new TableIdentifier(ident.name(), Option.apply(ident.namespace()[0]));
      properties.put(TableCatalog.PROP_LOCATION, CatalogUtils.URIToString(
          SparkSession.active().sessionState().catalog().defaultTablePath(name)));
      properties.put(TableCatalog.PROP_IS_MANAGED_LOCATION, "true");
    }
    return properties;
  }

  /** Registers the name and returns the options of the table, with its path. */
  private CaseInsensitiveStringMap register(
      Identifier ident, Column[] columns, Map<String, String> entry)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    super.createTable(ident, columns, new Transform[0], entry);
    return Options.ofTable(new CaseInsensitiveStringMap(entry));
  }

  private StagedTable stageCreate(Identifier ident, TableDefinition table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (!isLance(table)) {
      return createForeign(ident, table);
    }
    ClusteringColumns.check(table);
    CaseInsensitiveStringMap options =
        register(ident, table.columns(), entry(ident, table.properties()));
    return new StagedLanceTable(
        options, table.columns(), table, false, () -> {}, () -> dropTable(ident));
  }

  private StagedTable createOrReplace(Identifier ident, TableDefinition table)
      throws NoSuchNamespaceException {
    try {
      return tableExists(ident) ? replace(ident, table) : stageCreate(ident, table);
    } catch (NoSuchTableException | TableAlreadyExistsException concurrent) {
      throw new IllegalStateException(concurrent);
    }
  }

  private StagedTable replace(Identifier ident, TableDefinition table)
      throws NoSuchNamespaceException, NoSuchTableException {
    V1Table v1Table = lanceTable(ident);
    if (v1Table == null || !isLance(table)) {
      if (v1Table != null || isLance(table)) {
        throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] a table is not "
            + "replaced by one of another source\n  hint: DROP TABLE " + ident + " first");
      }
      return replaceForeign(ident, table);
    }
    Map<String, String> properties = new HashMap<>(table.properties());
    properties.put(TableCatalog.PROP_PROVIDER, "lance");
    CaseInsensitiveStringMap oldOptions = optionsOf(v1Table);
    CaseInsensitiveStringMap newOptions = Options.ofTable(new CaseInsensitiveStringMap(properties));
    String path = oldOptions.get("path");
    String location = newOptions.containsKey("path")
        ? resolveLocation(ident, newOptions.get("path")) : path;
    if (!Options.isSamePath(path, location)) {
      throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the table is at " + path
          + ", and replacing it leaves it there\n  hint: leave out the location, or DROP TABLE "
          + ident + " first");
    }
    CaseInsensitiveStringMap all =
        Options.with(Options.merge(oldOptions, newOptions), "path", path);
    return new StagedLanceTable(
        all, table.columns(), table, true, () -> updateCatalogColumns(ident), () -> {});
  }

  @Override public boolean dropTable(Identifier ident) {
    return SessionCatalogs.dropIfExists(() -> super.dropTable(ident));
  }

  @Override public Table alterTable(Identifier ident, TableChange... changes)
      throws NoSuchTableException {
    V1Table v1Table = lanceTable(ident);
    if (v1Table == null) {
      PrimaryKeys.refuseForeignConstraints(Arrays.stream(changes).anyMatch(
          PrimaryKeys::isAddition), ident);
      return super.alterTable(ident, changes);
    }
    AlterTable.run(TableRequest.of(optionsOf(v1Table)), changes);
    updateCatalogColumns(ident);
    CachedTables.refresh(optionsOf(v1Table));
    return AlterTable.loadAltered(() -> loadTable(ident));
  }

  /** Updates the columns in Spark's catalog, for sessions without this class. */
  private void updateCatalogColumns(Identifier ident) {
    try {
      V1Table v1Table = lanceTable(ident);
      Description found = Python.find(optionsOf(v1Table));
      List<TableChange> changes = new ArrayList<>();
      for (String column : v1Table.schema().fieldNames()) {
        changes.add(TableChange.deleteColumn(new String[] {column}, true));
      }
      for (var field : found.schema().fields()) {
        changes.add(TableChange.addColumn(new String[] {field.name()}, field.dataType()));
      }
      TableChange[] all = changes.toArray(TableChange[]::new);
      SessionCatalogs.loadFromMetastore(() -> super.alterTable(ident, all));
    } catch (Exception unsupported) {
      // Some metastores cannot drop columns; the Lance table is authoritative.
    }
  }

  /** As Spark does for catalogs without staging: create first, drop after a failure. */
  private StagedTable createForeign(Identifier ident, TableDefinition table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    PrimaryKeys.refuseForeignConstraints(!table.constraints().isEmpty(), ident);
    super.createTable(ident, table.columns(), table.partitions(), table.properties());
    try {
      return new StagedForeignTable(loadTable(ident), () -> dropTable(ident));
    } catch (NoSuchTableException error) {
      throw new IllegalStateException(error);
    }
  }

  private StagedTable replaceForeign(Identifier ident, TableDefinition table)
      throws NoSuchNamespaceException {
    dropTable(ident);
    try {
      return createForeign(ident, table);
    } catch (TableAlreadyExistsException concurrent) {
      throw new IllegalStateException(concurrent);
    }
  }
}
