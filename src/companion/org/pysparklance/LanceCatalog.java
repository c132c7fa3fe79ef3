package org.pysparklance;

import java.util.*;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A folder of tables as a catalog: {@code spark.sql.catalog.x = org.pysparklance.LanceCatalog} and
 * {@code spark.sql.catalog.x.path}; further keys are options of every table. A name with a slash
 * in it is a path of its own: {@code SELECT * FROM lance.`/data/t` VERSION AS OF 7}.
 */
public class LanceCatalog implements StagingTableCatalog, LanceProcedure.Catalog {
  private static final String[] NAMESPACE = {"main"};

  private String name;
  private CaseInsensitiveStringMap options;

  @Override public void initialize(String catalogName, CaseInsensitiveStringMap catalogOptions) {
    name = catalogName;
    options = catalogOptions;
    HiddenOptions.addToSession();
  }

  @Override public String name() { return name; }

  @Override public CaseInsensitiveStringMap pathOptions() { return options; }

  @Override public Set<TableCatalogCapability> capabilities() {
    return Set.of(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
  }

  private CaseInsensitiveStringMap optionsOf(Identifier ident) {
    return Options.with(options, "path", pathOf(ident));
  }

  private String pathOf(Identifier ident) {
    if (isOwn(ident.namespace()) && ident.name().contains("/")) {
      return ident.name();
    }
    return isListed(ident)
        ? options.get("path").replaceAll("/+$", "") + "/" + ident.name() + ".lance" : "";
  }

  private boolean isListed(Identifier ident) {
    return isOwn(ident.namespace()) && options.containsKey("path") && !ident.name().contains("/");
  }

  /** One namespace, which need not be named. Spark takes "default" for that of its own catalog. */
  private static boolean isOwn(String[] namespace) {
    return namespace.length == 0 || Arrays.equals(namespace, NAMESPACE)
        || namespace.length == 1 && namespace[0].equals("default");
  }

  @Override public String[] defaultNamespace() { return NAMESPACE.clone(); }

  @Override public Table loadTable(Identifier ident) throws NoSuchTableException {
    return load(ident, Map.of());
  }

  @Override public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    return load(ident, Options.version(version));
  }

  @Override public Table loadTable(Identifier ident, long micros) throws NoSuchTableException {
    return load(ident, Map.of("timestampAsOf", Options.time(micros)));
  }

  /** Spark has this method since 4.2; without its types, too, a class loads that declares it. */
  public Changelog loadChangelog(Identifier ident, ChangelogContext asked,
      CaseInsensitiveStringMap given) throws NoSuchTableException {
    return LanceChanges.of(load(ident, LanceChanges.options(asked, given)));
  }

  /** Since 4.3: the options that {@code loadChangelog} needs; all of them reach the scan. */
  public Set<String> changelogStateOptionKeys() { return Set.of("branch", "blobColumns"); }

  private NamedTable load(Identifier ident, Map<String, String> more) throws NoSuchTableException {
    CaseInsensitiveStringMap read = Options.merge(optionsOf(ident), more);
    Description found = read.get("path").isEmpty() ? null : Python.find(read);
    if (found == null) {
      throw new NoSuchTableException(ident);
    }
    Map<String, String> known = Map.of(TableCatalog.PROP_LOCATION, read.get("path"),
        TableCatalog.PROP_IS_MANAGED_LOCATION, "true");
    return new NamedTable(NamedTable.nameOf(name, ident), read, known, found, null);
  }

  @Override public Identifier[] listTables(String[] namespace) {
    List<Identifier> found = new ArrayList<>();
    if (isOwn(namespace) && options.containsKey("path")) {
      Python.call("tables", options).get("tables")
          .forEach(one -> found.add(Identifier.of(NAMESPACE, one.asText())));
    }
    return found.toArray(Identifier[]::new);
  }

  @Override public Table createTable(Identifier ident, TableInfo table) {
    StagedLanceTable created = stage(ident, table, false);
    created.commitStagedChanges();
    return created;
  }

  @Override public StagedTable stageCreate(Identifier ident, TableInfo table) {
    return stage(ident, table, false);
  }

  @Override public StagedTable stageReplace(Identifier ident, TableInfo table) {
    return stage(ident, table, true);
  }

  @Override public StagedTable stageCreateOrReplace(Identifier ident, TableInfo table) {
    return stage(ident, table, true);
  }

  private StagedLanceTable stage(Identifier ident, TableInfo table, boolean replaces) {
    LanceSource.refusePartitions(table.partitions().length > 0);
    String provider = table.properties().getOrDefault(TableCatalog.PROP_PROVIDER, "lance");
    if (!provider.equalsIgnoreCase("lance") && !isDefault(provider)) {
      throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] the tables of the "
          + "catalog " + name + " are Lance tables\n  hint: leave out USING " + provider);
    }
    if (table.properties().containsKey(TableCatalog.PROP_LOCATION)) {
      throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] the tables of the "
          + "catalog " + name + " lie in its folder\n  hint: leave out LOCATION, or make the "
          + "table in spark_catalog");
    }
    if (pathOf(ident).isEmpty()) {
      throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the catalog " + name
          + " has no place for a table " + ident + "\n  hint: name a table of its folder "
          + "(spark.sql.catalog." + name + ".path), or a path: lance.`/data/t`");
    }
    CaseInsensitiveStringMap given = Options.with(
        new CaseInsensitiveStringMap(table.properties()), TableCatalog.PROP_PROVIDER, "lance");
    return new StagedLanceTable(Options.merge(optionsOf(ident), Options.ofTable(given)), table,
        replaces, () -> {}, () -> {});
  }

  /** A DataFrame says the default of the session where the user says nothing. */
  private static boolean isDefault(String provider) {
    return provider.equals(SQLConf.get().defaultDataSourceName())
        && LanceSource.isCalledBy("DataFrameWriter");
  }

  @Override
  public Table alterTable(Identifier ident, TableChange... changes) throws NoSuchTableException {
    AlterTable.run(optionsOf(ident), changes);
    return loadTable(ident);
  }

  @Override public boolean dropTable(Identifier ident) {
    return isListed(ident) && Python.call("drop", optionsOf(ident)).get("dropped").asBoolean();
  }

  @Override public void renameTable(Identifier from, Identifier to) {
    Python.call("rename", optionsOf(from), "_lance.new_path", pathOf(to));
  }
}
