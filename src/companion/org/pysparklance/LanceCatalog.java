package org.pysparklance;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.*;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
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
  }

  @Override public String name() { return name; }

  private CaseInsensitiveStringMap optionsOf(Identifier ident, String... pairs) {
    return Options.with(Options.with(options, "path", pathOf(ident)), pairs);
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
    return load(ident);
  }

  @Override public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    boolean isNumber = version.chars().allMatch(Character::isDigit);
    return load(ident, isNumber ? "version" : "tag", version);
  }

  @Override public Table loadTable(Identifier ident, long micros) throws NoSuchTableException {
    Instant time = Instant.EPOCH.plus(micros, ChronoUnit.MICROS);
    return load(ident, "timestampAsOf", time.toString());
  }

  private Table load(Identifier ident, String... at) throws NoSuchTableException {
    CaseInsensitiveStringMap read = optionsOf(ident, at);
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

  @Override public Table createTable(Identifier ident, Column[] columns, Transform[] parts,
      Map<String, String> properties) {
    Staged table = stage(ident, columns, parts, properties, CREATE);
    table.commitStagedChanges();
    return table;
  }

  @Override public StagedTable stageCreate(Identifier ident, Column[] columns, Transform[] parts,
      Map<String, String> properties) {
    return stage(ident, columns, parts, properties, CREATE);
  }

  @Override public StagedTable stageReplace(Identifier ident, Column[] columns, Transform[] parts,
      Map<String, String> properties) {
    return stage(ident, columns, parts, properties, REPLACE);
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier ident, Column[] columns, Transform[] parts,
      Map<String, String> properties) {
    return stage(ident, columns, parts, properties, REPLACE);
  }

  private Staged stage(Identifier ident, Column[] columns, Transform[] parts,
      Map<String, String> properties, String mode) {
    LanceSource.refusePartitions(parts.length > 0);
    StructType schema = new StructType();
    for (Column column : columns) {
      schema = schema.add(column.name(), column.dataType(), column.nullable());
    }
    Map<String, String> given = new HashMap<>(properties);
    given.put(TableCatalog.PROP_PROVIDER, "lance");
    CaseInsensitiveStringMap own = Options.ofTable(new CaseInsensitiveStringMap(given));
    return new Staged(Options.merge(optionsOf(ident), own), schema, mode);
  }

  /** A table that is about to be made or replaced, with or without rows, in one version. */
  private static final class Staged extends LanceTable implements StagedTable {
    private final String mode;
    private boolean written;

    Staged(CaseInsensitiveStringMap options, StructType schema, String mode) {
      super(Options.with(options, mode, "true"), schema, null, true);
      this.mode = mode;
    }

    @Override public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      written = true;
      LanceWrite.Builder builder = (LanceWrite.Builder) super.newWriteBuilder(info);
      return mode.equals(REPLACE) ? builder.truncate() : builder;
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
