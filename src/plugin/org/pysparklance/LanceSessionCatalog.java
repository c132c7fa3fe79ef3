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
import org.pysparklance.catalog.ClusterColumns;
import org.pysparklance.catalog.LanceChanges;
import org.pysparklance.catalog.LanceProcedure;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.catalog.NamedTable;
import org.pysparklance.catalog.NewTable;
import org.pysparklance.catalog.PrimaryKeys;
import org.pysparklance.catalog.SessionCatalogs;
import org.pysparklance.catalog.StagedLanceTable;
import org.pysparklance.catalog.StagedForeignTable;
import org.pysparklance.compat.Releases;
import org.pysparklance.python.Description;
import org.pysparklance.python.NamedRequest;
import org.pysparklance.python.Options;
import org.pysparklance.python.Python;
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

  private static boolean isLance(NewTable table) {
    return NamedTable.isProvider(table.properties().getOrDefault(
        TableCatalog.PROP_PROVIDER, SQLConf.get().defaultDataSourceName()));
  }

  /** The catalog's entry of a Lance table; null for other tables and views. */
  private V1Table lanceTable(Identifier ident) throws NoSuchTableException {
    return lanceTable(SessionCatalogs.listed(() -> super.loadTable(ident)));
  }

  private static V1Table lanceTable(Table listed) {
    if (listed instanceof V1Table known
        && NamedTable.isProvider(known.catalogTable().provider().getOrElse(() -> ""))) {
      SessionRules.addToSession();
      return known;
    }
    return null;
  }

  @Override public Table loadTable(Identifier ident) throws NoSuchTableException {
    Table listed = SessionCatalogs.listed(() -> super.loadTable(ident));
    V1Table known = lanceTable(listed);
    return known != null ? load(ident, known, Map.of())
        : SessionCatalogs.isOpened(listed) ? SessionCatalogs.opened(() -> super.loadTable(ident))
        : listed;
  }

  @Override public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    V1Table known = lanceTable(ident);
    return known == null ? super.loadTable(ident, version)
        : load(ident, known, Options.version(version));
  }

  @Override public Table loadTable(Identifier ident, long micros) throws NoSuchTableException {
    V1Table known = lanceTable(ident);
    return known == null ? super.loadTable(ident, micros)
        : load(ident, known, Map.of("timestampAsOf", Options.time(micros)));
  }

  /** Since Spark 4.2; the class also loads in older releases, which lack the types. */
  public Changelog loadChangelog(Identifier ident, ChangelogContext asked,
      CaseInsensitiveStringMap given) throws NoSuchTableException {
    V1Table known = lanceTable(ident);
    if (known == null) {
      throw new UnsupportedOperationException(ident + " is no Lance table and has no changes");
    }
    CaseInsensitiveStringMap read =
        Options.merge(optionsOf(known), LanceChanges.options(asked, given));
    Description found = Python.describe(read);
    return LanceChanges.of(new LanceTable(read, found.schema(), found, false));
  }

  /** Since 4.3: the options that {@code loadChangelog} needs; all of them reach the scan. */
  public Set<String> changelogStateOptionKeys() { return Set.of("branch", "blobColumns"); }

  private static CaseInsensitiveStringMap optionsOf(V1Table known) {
    return Options.ofTable(new CaseInsensitiveStringMap(known.properties()));
  }

  private NamedTable load(Identifier ident, V1Table known, Map<String, String> more) {
    CaseInsensitiveStringMap read = Options.merge(optionsOf(known), more);
    Description found = Python.find(read);
    Map<String, String> shown = new HashMap<>(known.properties());
    // An existing table has its own properties.
    shown.keySet().removeIf(name -> name.startsWith(TableCatalog.OPTION_PREFIX)
        || found != null && !CatalogV2Util.TABLE_RESERVED_PROPERTIES().contains(name));
    if (known.catalogTable().tableType().equals(CatalogTableType.MANAGED())) {
      shown.put(TableCatalog.PROP_IS_MANAGED_LOCATION, "true");
    }
    return new NamedTable(
        NamedTable.nameOf(name(), ident), read, shown, found, known.schema());
  }

  @Override public Table createTable(Identifier ident, TableInfo table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return createTable(ident, NewTable.of(table));
  }

  @Override public StagedTable stageCreate(Identifier ident, TableInfo table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return stageCreate(ident, NewTable.of(table));
  }

  @Override public StagedTable stageReplace(Identifier ident, TableInfo table)
      throws NoSuchNamespaceException, NoSuchTableException {
    return replace(ident, NewTable.of(table));
  }

  @Override public StagedTable stageCreateOrReplace(Identifier ident, TableInfo table)
      throws NoSuchNamespaceException {
    return createOrReplace(ident, NewTable.of(table));
  }

  // Spark 4.0 calls these four.

  @Override public Table createTable(Identifier ident, Column[] columns, Transform[] partitions,
      Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return createTable(ident, NewTable.of(columns, partitions, properties));
  }

  @Override public StagedTable stageCreate(Identifier ident, Column[] columns,
      Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return stageCreate(ident, NewTable.of(columns, partitions, properties));
  }

  @Override public StagedTable stageReplace(Identifier ident, Column[] columns,
      Transform[] partitions, Map<String, String> properties)
      throws NoSuchNamespaceException, NoSuchTableException {
    return replace(ident, NewTable.of(columns, partitions, properties));
  }

  @Override public StagedTable stageCreateOrReplace(Identifier ident, Column[] columns,
      Transform[] partitions, Map<String, String> properties) throws NoSuchNamespaceException {
    return createOrReplace(ident, NewTable.of(columns, partitions, properties));
  }

  private Table createTable(Identifier ident, NewTable table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (!isLance(table)) {
      PrimaryKeys.refuseOfOthers(!table.constraints().isEmpty(), ident);
      return super.createTable(
          ident, table.columns(), table.partitions(), table.properties());
    }
    return create(ident, table.columns(), table);
  }

  private Table create(Identifier ident, Column[] columns, NewTable table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    ClusterColumns.check(table);
    Map<String, String> properties = table.properties();
    Map<String, String> entry = entry(ident, properties);
    Description there = Python.find(Options.ofTable(new CaseInsensitiveStringMap(entry)));
    if (there != null) {
      checkProperties(there, properties, entry);
      PrimaryKeys.checkSame(there, table.constraints());
      ClusterColumns.checkSame(there, table.partitions());
    }
    CaseInsensitiveStringMap options = register(ident, columns, entry);
    if (there == null) {
      StagedLanceTable made = new StagedLanceTable(
          options, columns, table, false, () -> {}, () -> dropTable(ident));
      try {
        made.commitStagedChanges();
      } catch (Exception error) {  // those of Scala are none of the kinds that Java declares
        made.abortStagedChanges();
        throw error;
      }
    }
    return null;  // which saves finding the table
  }

  /** Refuse properties for an existing table that is only registered: they would be ignored. */
  private static void checkProperties(
      Description there, Map<String, String> given, Map<String, String> entry) {
    Map<String, String> kept = StagedLanceTable.kept(given);
    // SHOW CREATE TABLE prints the options of the table, too.
    if (!there.properties().entrySet().containsAll(kept.entrySet())) {
      kept.entrySet().removeAll(NamedTable.newTableOptions(
          Options.ofTable(new CaseInsensitiveStringMap(entry))).entrySet());
    }
    kept.forEach((name, value) -> {
      boolean isComment = name.equals(TableCatalog.PROP_COMMENT);
      if (!isComment && !value.equals(there.properties().get(name))) {
        throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the table already exists, "
            + "without the property " + name + " = " + value + "\n  at: " + there.root()
            + "\n  hint: leave out TBLPROPERTIES, then ALTER TABLE … SET TBLPROPERTIES");
      }
    });
  }

  /** Since Spark 4.3, for DataSource V2; older releases never call it. */
  public Table createTableLike(Identifier ident, TableInfo table, Table source)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (!(source instanceof NamedTable) && !isLance(NewTable.of(table))) {
      throw new UnsupportedOperationException("CREATE TABLE LIKE " + source.name());
    }
    NewTable like = NewTable.like(table, source);
    return create(ident, like.columns(), like);
  }

  /** A location as Spark resolves it: a relative one is in the folder of the database. */
  private static String inDatabase(Identifier ident, String location) {
    if (location.startsWith("/") || location.matches("(?i)[a-z][a-z0-9+.:-]*?:/.*")) {
      return location;
    }
    URI database = SparkSession.active().sessionState().catalog()
        .getDatabaseMetadata(ident.namespace()[0]).locationUri();
    return new Path(new Path(database), new Path(null, null, location)).toString();
  }

  /** The entry of a new table in the catalog, with its location. */
  private static Map<String, String> entry(Identifier ident, Map<String, String> given) {
    Map<String, String> properties = new HashMap<>(given);
    properties.put(TableCatalog.PROP_PROVIDER, "lance");
    String path = properties.remove(TableCatalog.OPTION_PREFIX + "path");
    if (path != null) {
      properties.putIfAbsent(TableCatalog.PROP_LOCATION, path);
    }
    properties.computeIfPresent(TableCatalog.PROP_LOCATION,
        (name, location) -> inDatabase(ident, location));
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

  private StagedTable stageCreate(Identifier ident, NewTable table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (!isLance(table)) {
      return other(ident, table);
    }
    ClusterColumns.check(table);
    CaseInsensitiveStringMap options =
        register(ident, table.columns(), entry(ident, table.properties()));
    return new StagedLanceTable(
        options, table.columns(), table, false, () -> {}, () -> dropTable(ident));
  }

  private StagedTable createOrReplace(Identifier ident, NewTable table)
      throws NoSuchNamespaceException {
    try {
      return tableExists(ident) ? replace(ident, table) : stageCreate(ident, table);
    } catch (NoSuchTableException | TableAlreadyExistsException meanwhile) {
      throw new IllegalStateException(meanwhile);
    }
  }

  private StagedTable replace(Identifier ident, NewTable table)
      throws NoSuchNamespaceException, NoSuchTableException {
    V1Table known = lanceTable(ident);
    if (known == null || !isLance(table)) {
      if (known != null || isLance(table)) {
        throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] a table is not "
            + "replaced by one of another source\n  hint: DROP TABLE " + ident + " first");
      }
      return replaceOther(ident, table);
    }
    Map<String, String> properties = new HashMap<>(table.properties());
    properties.put(TableCatalog.PROP_PROVIDER, "lance");
    CaseInsensitiveStringMap own = optionsOf(known);
    CaseInsensitiveStringMap given = Options.ofTable(new CaseInsensitiveStringMap(properties));
    String path = own.get("path");
    String wanted = given.containsKey("path") ? inDatabase(ident, given.get("path")) : path;
    if (!Options.isSamePath(path, wanted)) {
      throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the table is at " + path
          + ", and replacing it leaves it there\n  hint: leave out the location, or DROP TABLE "
          + ident + " first");
    }
    CaseInsensitiveStringMap all = Options.with(Options.merge(own, given), "path", path);
    return new StagedLanceTable(
        all, table.columns(), table, true, () -> followColumns(ident), () -> {});
  }

  @Override public boolean dropTable(Identifier ident) {
    return SessionCatalogs.dropped(() -> super.dropTable(ident));
  }

  @Override public Table alterTable(Identifier ident, TableChange... changes)
      throws NoSuchTableException {
    V1Table known = lanceTable(ident);
    if (known == null) {
      PrimaryKeys.refuseOfOthers(Arrays.stream(changes).anyMatch(
          PrimaryKeys::isAddition), ident);
      return super.alterTable(ident, changes);
    }
    AlterTable.run(NamedRequest.of(optionsOf(known)), changes);
    followColumns(ident);
    CachedTables.refresh(optionsOf(known));
    return AlterTable.altered(() -> loadTable(ident));
  }

  /** Updates the columns in Spark's catalog, for sessions without this class. */
  private void followColumns(Identifier ident) {
    try {
      V1Table known = lanceTable(ident);
      Description found = Python.find(optionsOf(known));
      List<TableChange> changes = new ArrayList<>();
      for (String old : known.schema().fieldNames()) {
        changes.add(TableChange.deleteColumn(new String[] {old}, true));
      }
      for (var field : found.schema().fields()) {
        changes.add(TableChange.addColumn(new String[] {field.name()}, field.dataType()));
      }
      TableChange[] all = changes.toArray(TableChange[]::new);
      SessionCatalogs.listed(() -> super.alterTable(ident, all));
    } catch (Exception notFollowed) {
      // Some metastores cannot drop columns; the Lance table is authoritative.
    }
  }

  /** As Spark does for catalogs without staging: create first, drop after a failure. */
  private StagedTable other(Identifier ident, NewTable table)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    PrimaryKeys.refuseOfOthers(!table.constraints().isEmpty(), ident);
    super.createTable(ident, table.columns(), table.partitions(), table.properties());
    try {
      return new StagedForeignTable(loadTable(ident), () -> dropTable(ident));
    } catch (NoSuchTableException error) {
      throw new IllegalStateException(error);
    }
  }

  private StagedTable replaceOther(Identifier ident, NewTable table)
      throws NoSuchNamespaceException {
    dropTable(ident);
    try {
      return other(ident, table);
    } catch (TableAlreadyExistsException meanwhile) {
      throw new IllegalStateException(meanwhile);
    }
  }
}
