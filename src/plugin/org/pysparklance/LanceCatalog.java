package org.pysparklance;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;
import org.apache.spark.sql.catalyst.analysis.*;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.catalog.AlterTable;
import org.pysparklance.catalog.CachedTables;
import org.pysparklance.catalog.ClusteringColumns;
import org.pysparklance.catalog.LanceCatalogTable;
import org.pysparklance.catalog.LanceChangelog;
import org.pysparklance.catalog.PathCatalog;
import org.pysparklance.catalog.StagedLanceTable;
import org.pysparklance.catalog.TableDefinition;
import org.pysparklance.compat.CallStack;
import org.pysparklance.compat.Releases;
import org.pysparklance.python.Description;
import org.pysparklance.python.LanceException;
import org.pysparklance.python.Options;
import org.pysparklance.python.Python;
import org.pysparklance.python.Responses;
import org.pysparklance.python.TableRequest;
import org.pysparklance.rules.SessionRules;
import org.slf4j.LoggerFactory;

/**
 * A Lance namespace as a catalog: {@code spark.sql.catalog.x = org.pysparklance.LanceCatalog} and
 * {@code spark.sql.catalog.x.path} for a folder of tables, {@code x.uri} for a REST service, or
 * {@code x.namespace} for Glue, Hive, Unity, …; further keys are options of every table. Python
 * resolves the names. A name with a slash is a path:
 * {@code SELECT * FROM lance.`/data/t` VERSION AS OF 7}.
 */
public class LanceCatalog
    implements StagingTableCatalog, SupportsNamespaces, PathCatalog {
  /** Settings of the namespace; the remaining ones are options of the tables. */
  private static final String NAMESPACE_SETTINGS =
      "(?i)impl|namespace|root|path|uri|delimiter|manifest_enabled|dir_listing_enabled|headers?[.].*";

  /** Names of the root, as Spark requires a namespace in every name. */

  private String name;
  private JsonNode settings;
  private CaseInsensitiveStringMap options;

  @Override public void initialize(String catalogName, CaseInsensitiveStringMap catalogOptions) {
    name = catalogName;
    Map<String, String> tableOptions = new HashMap<>(catalogOptions.asCaseSensitiveMap());
    settings = Python.JSON.valueToTree(tableOptions);
    // Implementations from other packages define their own settings, so they get all.
    boolean isRegistered =
        !catalogOptions.getOrDefault("impl", catalogOptions.getOrDefault("namespace", "dir"))
        .matches("(?i)dir|rest");
    tableOptions.keySet().removeIf(one ->
        isRegistered ? !one.toLowerCase(Locale.ROOT).startsWith("storage.")
        : one.matches(NAMESPACE_SETTINGS));
    options = new CaseInsensitiveStringMap(tableOptions);
    SessionRules.addToSession();
  }

  @Override public String name() { return name; }

  @Override public CaseInsensitiveStringMap pathOptions() { return options; }

  @Override public Set<TableCatalogCapability> capabilities() {
    Set<TableCatalogCapability> all =
        EnumSet.of(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
    Releases.addConstraints(all);
    return all;
  }

  @Override public String[] defaultNamespace() { return new String[] {ROOT}; }

  private static boolean isPath(Identifier ident) {
    return ident.namespace().length <= 1 && ident.name().contains("/");
  }

  private static List<String> nameOf(Identifier ident) {
    List<String> parts = new ArrayList<>(List.of(ident.namespace()));
    parts.add(ident.name());
    return parts;
  }

  /** A request for a table, which Python finds by its name. */
  private TableRequest requestFor(Identifier ident) {
    return isPath(ident) ? TableRequest.of(Options.with(options, "path", ident.name()))
        : new TableRequest(options, settings, nameOf(ident));
  }

  @Override public Table loadTable(Identifier ident) throws NoSuchTableException {
    return load(ident, Map.of());
  }

  @Override public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    return load(ident, Options.versionOption(version));
  }

  @Override public Table loadTable(Identifier ident, long micros) throws NoSuchTableException {
    return load(ident, Map.of("timestampAsOf", Options.formatTimestamp(micros)));
  }

  /** Since Spark 4.2; the class also loads in older releases, which lack the types. */
  public Changelog loadChangelog(Identifier ident, ChangelogContext context,
      CaseInsensitiveStringMap scanOptions) throws NoSuchTableException {
    return LanceChangelog.of(load(ident, LanceChangelog.options(context, scanOptions)));
  }

  /** Since 4.3: the options that {@code loadChangelog} needs; all of them reach the scan. */
  public Set<String> changelogStateOptionKeys() { return Set.of("branch", "blobColumns"); }

  private LanceCatalogTable load(Identifier ident, Map<String, String> overrides)
      throws NoSuchTableException {
    TableRequest request = requestFor(ident).with(overrides);
    Description found = Python.find(request);
    if (found == null) {
      if (isFileSourcePath(ident) && !CallStack.isMissingTableLookup()) {
        Python.describe(request);  // which says what is missing, and what is near
      }
      throw new NoSuchTableException(ident);
    }
    CaseInsensitiveStringMap readOptions = isPath(ident) ? request.options()
        : Options.merge(Options.merge(options, found.options()), overrides);
    Map<String, String> location = Map.of(TableCatalog.PROP_LOCATION, readOptions.get("path"),
        found.isExternal() ? TableCatalog.PROP_EXTERNAL : TableCatalog.PROP_IS_MANAGED_LOCATION,
        "true");
    return new LanceCatalogTable(LanceCatalogTable.nameOf(name, ident), readOptions, location,
        found, null);
  }

  /**
   * Whether Spark would resolve a missing table as a path of a file source, and report that the
   * source is not installed. Only an unknown exception prevents that.
   */
  private boolean isFileSourcePath(Identifier ident) {
    return isPath(ident) || ident.namespace().length == 0 && name.equalsIgnoreCase("lance");
  }

  @Override public boolean tableExists(Identifier ident) {
    return Python.find(requestFor(ident)) != null;
  }

  @Override public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    return Python.tables(settings, namespace);
  }

  @Override public Table createTable(Identifier ident, TableInfo table)
      throws NoSuchNamespaceException, TableAlreadyExistsException {
    return createTable(ident, TableDefinition.of(table));
  }

  /** Since Spark 4.3; older releases never call it. */
  public Table createTableLike(Identifier ident, TableInfo table, Table source)
      throws NoSuchNamespaceException, TableAlreadyExistsException {
    return createTable(ident, TableDefinition.like(table, source));
  }

  @Override public StagedTable stageCreate(Identifier ident, TableInfo table)
      throws NoSuchNamespaceException {
    return stage(ident, TableDefinition.of(table), false);
  }

  @Override public StagedTable stageReplace(Identifier ident, TableInfo table)
      throws NoSuchNamespaceException {
    return stage(ident, TableDefinition.of(table), true);
  }

  @Override public StagedTable stageCreateOrReplace(Identifier ident, TableInfo table)
      throws NoSuchNamespaceException {
    return stage(ident, TableDefinition.of(table), true);
  }

  // Spark 4.0 calls these four.

  @Override public Table createTable(Identifier ident, Column[] columns, Transform[] partitions,
      Map<String, String> properties) throws NoSuchNamespaceException, TableAlreadyExistsException {
    return createTable(ident, TableDefinition.of(columns, partitions, properties));
  }

  @Override public StagedTable stageCreate(Identifier ident, Column[] columns,
      Transform[] partitions, Map<String, String> properties) throws NoSuchNamespaceException {
    return stage(ident, TableDefinition.of(columns, partitions, properties), false);
  }

  @Override public StagedTable stageReplace(Identifier ident, Column[] columns,
      Transform[] partitions, Map<String, String> properties) throws NoSuchNamespaceException {
    return stage(ident, TableDefinition.of(columns, partitions, properties), true);
  }

  @Override public StagedTable stageCreateOrReplace(Identifier ident, Column[] columns,
      Transform[] partitions, Map<String, String> properties) throws NoSuchNamespaceException {
    return stage(ident, TableDefinition.of(columns, partitions, properties), true);
  }

  private Table createTable(Identifier ident, TableDefinition table)
      throws NoSuchNamespaceException, TableAlreadyExistsException {
    StagedLanceTable created = stage(ident, table, false);
    try {
      created.commitStagedChanges();
    } catch (Exception error) {  // those of Scala are none of the kinds that Java declares
      created.abortStagedChanges();
      // Another client was faster: Spark ignores that for IF NOT EXISTS.
      if (error instanceof LanceException failed && failed.isTableExists() && tableExists(ident)) {
        throw new TableAlreadyExistsException(ident);
      }
      throw error;
    }
    return created;
  }

  private StagedLanceTable stage(Identifier ident, TableDefinition table, boolean replaces)
      throws NoSuchNamespaceException {
    ClusteringColumns.check(table);
    String provider = table.properties().getOrDefault(TableCatalog.PROP_PROVIDER, "lance");
    if (!provider.equalsIgnoreCase("lance") && !isDefault(provider)) {
      throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] the tables of the "
          + "catalog " + name + " are Lance tables\n  hint: leave out USING " + provider);
    }
    CaseInsensitiveStringMap tableOptions = Options.with(
        new CaseInsensitiveStringMap(table.properties()), TableCatalog.PROP_PROVIDER, "lance");
    TableRequest request = requestFor(ident);
    String location = Options.ofTable(tableOptions).get("path");
    if (isPath(ident) && location != null && !Options.isSamePath(location, ident.name())) {
      throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] a table that is named by its "
          + "path lies there, and not in " + location + "\n  at: " + ident.name()
          + "\n  hint: leave out LOCATION and the option path");
    }
    if (isPath(ident)) {
      return new StagedLanceTable(newOptions(request.options(), tableOptions), table.columns(),
          table, replaces, () -> {}, () -> {});
    }
    Responses.Declared declared = Python.declare(request, location, ident.namespace());
    CaseInsensitiveStringMap resolvedOptions = Options.merge(options, declared.options());
    return new StagedLanceTable(newOptions(resolvedOptions, tableOptions), table.columns(), table,
        replaces, () -> Python.register(request, resolvedOptions.get("path")),
        () -> undeclare(request, declared));
  }

  /** The options of a statement, at the resolved path. */
  private static CaseInsensitiveStringMap newOptions(
      CaseInsensitiveStringMap resolved, CaseInsensitiveStringMap ofStatement) {
    return Options.with(Options.merge(resolved, Options.ofTable(ofStatement)),
        "path", resolved.get("path"));
  }

  /** Removes the name of a table whose creation failed with an error, which is reported instead. */
  private static void undeclare(TableRequest request, Responses.Declared declared) {
    try {
      if (declared.isNew()) {
        Python.undeclare(request);
      }
    } catch (RuntimeException error) {
      LoggerFactory.getLogger(LanceCatalog.class).warn("the catalog keeps the name {} of a table that was "
          + "not created", request.name(),
          error);
    }
  }

  /** Writers of DataFrames and streams set the session's default provider if the user sets none. */
  private static boolean isDefault(String provider) {
    return provider.equals(SQLConf.get().defaultDataSourceName())
        && (CallStack.contains("DataFrameWriter") || CallStack.contains("DataStreamWriter"));
  }

  @Override
  public Table alterTable(Identifier ident, TableChange... changes) throws NoSuchTableException {
    AlterTable.run(requestFor(ident), changes);
    return AlterTable.loadAltered(() -> {
      LanceCatalogTable table = load(ident, Map.of());
      CachedTables.refresh(table.options());
      return table;
    });
  }

  /** Spark ignores the return value, so this throws if nothing was dropped. */
  @Override public boolean dropTable(Identifier ident) {
    refusePath(ident, "dropped", "DELETE FROM removes its rows, and older versions keep them; to "
        + "remove the table, delete its folder with the tools of the store");
    return Python.drop(requestFor(ident));
  }

  @Override public void renameTable(Identifier from, Identifier to) {
    for (Identifier one : List.of(from, to)) {
      refusePath(one, "renamed", "move the folder with the tools of the store");
    }
    Python.rename(requestFor(from), nameOf(to));
  }

  /** Refuse to drop a table by path: no catalog owns it, and a typo would remove a folder. */
  private static void refusePath(Identifier ident, String action, String hint) {
    if (isPath(ident)) {
      throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] a table that is named "
          + "by its path cannot be " + action + "\n  at: " + ident.name() + "\n  hint: " + hint);
    }
  }

  @Override public String[][] listNamespaces() throws NoSuchNamespaceException {
    return listNamespaces(new String[0]);
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    List<String[]> found = new ArrayList<>();
    for (String one : Python.namespaces(settings, namespace)) {
      String[] fullName = Arrays.copyOf(namespace, namespace.length + 1);
      fullName[namespace.length] = one;
      found.add(fullName);
    }
    return found.toArray(String[][]::new);
  }

  @Override public Map<String, String> loadNamespaceMetadata(String[] namespace)
      throws NoSuchNamespaceException {
    return Python.namespace(settings, namespace);
  }

  @Override public void createNamespace(String[] namespace, Map<String, String> properties)
      throws NamespaceAlreadyExistsException {
    if (!Python.createNamespace(settings, namespace, properties)) {
      throw new NamespaceAlreadyExistsException(namespace);
    }
  }

  @Override public void alterNamespace(String[] namespace, NamespaceChange... changes)
      throws NoSuchNamespaceException {
    Map<String, String> properties = new HashMap<>();
    for (NamespaceChange change : changes) {
      if (change instanceof NamespaceChange.SetProperty set) {
        properties.put(set.property(), set.value());
      } else if (change instanceof NamespaceChange.RemoveProperty removed) {
        properties.put(removed.property(), null);
      }
    }
    Python.alterNamespace(settings, namespace, properties);
  }

  @Override public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    return Python.dropNamespace(settings, namespace, cascade);
  }
}
