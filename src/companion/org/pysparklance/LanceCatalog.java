package org.pysparklance;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.*;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A folder of tables as a catalog: {@code spark.sql.catalog.x = org.pysparklance.LanceCatalog} and
 * {@code spark.sql.catalog.x.path}; further keys are options of every table. A name with a slash
 * in it is a path of its own: {@code SELECT * FROM lance.`/data/t` VERSION AS OF 7}.
 */
public class LanceCatalog implements StagingTableCatalog {
  private static final String CREATE = "_lance.create";
  private static final String REPLACE = "_lance.replace";

  private String name;
  private CaseInsensitiveStringMap options;

  @Override public void initialize(String catalogName, CaseInsensitiveStringMap catalogOptions) {
    name = catalogName;
    options = catalogOptions;
    HiddenOptions.addToSession();
  }

  @Override public String name() { return name; }

  private CaseInsensitiveStringMap optionsOf(Identifier ident) {
    return Options.with(options, "path", pathOf(ident));
  }

  private String pathOf(Identifier ident) {
    if (ident.namespace().length == 0 && ident.name().contains("/")) {
      return ident.name();
    }
    return isListed(ident)
        ? options.get("path").replaceAll("/+$", "") + "/" + ident.name() + ".lance" : "";
  }

  private boolean isListed(Identifier ident) {
    return ident.namespace().length == 0 && options.containsKey("path")
        && !ident.name().contains("/");
  }

  @Override public Table loadTable(Identifier ident) throws NoSuchTableException {
    return load(ident, Map.of());
  }

  @Override public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    boolean isNumber = version.chars().allMatch(Character::isDigit);
    return load(ident, Map.of(isNumber ? "version" : "tag", version));
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

  private LanceTable load(Identifier ident, Map<String, String> more) throws NoSuchTableException {
    CaseInsensitiveStringMap read = Options.merge(optionsOf(ident), more);
    Description found = read.get("path").isEmpty() ? null : Python.find(read);
    if (found == null) {
      throw new NoSuchTableException(ident);
    }
    return new LanceTable(read, found.schema(), found, false);
  }

  @Override public Identifier[] listTables(String[] namespace) {
    List<Identifier> found = new ArrayList<>();
    if (namespace.length == 0 && options.containsKey("path")) {
      Python.call("tables", options).get("tables")
          .forEach(one -> found.add(Identifier.of(namespace, one.asText())));
    }
    return found.toArray(Identifier[]::new);
  }

  @Override public Table createTable(Identifier ident, TableInfo table) {
    Staged created = stage(ident, table, CREATE);
    created.commitStagedChanges();
    return created;
  }

  @Override public StagedTable stageCreate(Identifier ident, TableInfo table) {
    return stage(ident, table, CREATE);
  }

  @Override public StagedTable stageReplace(Identifier ident, TableInfo table) {
    return stage(ident, table, REPLACE);
  }

  @Override public StagedTable stageCreateOrReplace(Identifier ident, TableInfo table) {
    return stage(ident, table, REPLACE);
  }

  private Staged stage(Identifier ident, TableInfo table, String mode) {
    LanceSource.refusePartitions(table.partitions().length > 0);
    CaseInsensitiveStringMap given = Options.with(
        new CaseInsensitiveStringMap(table.properties()), TableCatalog.PROP_PROVIDER, "lance");
    return new Staged(
        Options.merge(optionsOf(ident), Options.ofTable(given)), table.schema(), mode);
  }

  /** A table that is about to be made or replaced, with or without rows, in one version. */
  private static final class Staged extends LanceTable implements StagedTable {
    private final String mode;
    private boolean written;

    Staged(CaseInsensitiveStringMap options, StructType schema, String mode) {
      super(Options.with(options, mode, "true"), schema, null, true);
      this.mode = mode;
    }

    @Override public LanceWrite newWriteBuilder(LogicalWriteInfo info) {
      written = true;
      LanceWrite write = super.newWriteBuilder(info);
      return mode.equals(REPLACE) ? write.truncate() : write;
    }

    @Override public void commitStagedChanges() {
      if (!written) {
        Python.call("create", options, "_lance.schema", schema().json());
      }
    }

    @Override public void abortStagedChanges() {
      // Nothing is visible before the commit of the write.
    }

    /** Two interfaces of Spark have this method since 4.2. */
    public CustomTaskMetric[] reportDriverMetrics() { return new CustomTaskMetric[0]; }
  }

  @Override
  public Table alterTable(Identifier ident, TableChange... changes) throws NoSuchTableException {
    ArrayNode all = Python.JSON.createArrayNode();
    for (TableChange change : changes) {
      ObjectNode one = all.addObject().put("kind", change.getClass().getSimpleName());
      if (change instanceof TableChange.ColumnChange column) {
        one.set("column", Python.JSON.valueToTree(column.fieldNames()));
      }
      if (change instanceof TableChange.AddColumn added) {
        one.put("type", added.dataType().json()).put("nullable", added.isNullable())
            .put("comment", added.comment()).put("placed", added.position() != null);
      } else if (change instanceof TableChange.RenameColumn renamed) {
        one.put("name", renamed.newName());
      } else if (change instanceof TableChange.DeleteColumn dropped) {
        one.put("ifExists", dropped.ifExists());
      } else if (change instanceof TableChange.UpdateColumnType changed) {
        one.put("type", changed.newDataType().json());
      } else if (change instanceof TableChange.UpdateColumnNullability changed) {
        one.put("nullable", changed.nullable());
      } else if (change instanceof TableChange.UpdateColumnComment changed) {
        one.put("comment", changed.newComment());
      }
    }
    Python.call("alter", optionsOf(ident), "_lance.changes", all.toString());
    return loadTable(ident);
  }

  @Override public boolean dropTable(Identifier ident) {
    return isListed(ident) && Python.call("drop", optionsOf(ident)).get("dropped").asBoolean();
  }

  @Override public void renameTable(Identifier from, Identifier to) {
    Python.call("rename", optionsOf(from), "_lance.new_path", pathOf(to));
  }
}
