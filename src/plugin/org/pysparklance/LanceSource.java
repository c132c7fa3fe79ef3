package org.pysparklance;

import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.*;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.catalog.CachedTables;
import org.pysparklance.catalog.ClusteringColumns;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.compat.CallStack;
import org.pysparklance.python.Description;
import org.pysparklance.python.Options;
import org.pysparklance.python.Plugin;
import org.pysparklance.python.Python;
import org.pysparklance.rules.SessionRules;
import scala.jdk.javaapi.CollectionConverters;

/**
 * {@code format("lance")} on the JVM. It plans, and the Python source of the same name reads and
 * writes; only Python knows the table format. Spark prefers a Java source to a Python one.
 */
public class LanceSource implements TableProvider, DataSourceRegister, CreatableRelationProvider {
  private static final String SAVE = "_lance.save";

  private Description description;
  private boolean isInferred;

  /** Spark calls this for all sources, whichever it looks up. */
  @Override public String shortName() { return Plugin.isOn() ? "lance" : Plugin.HIDDEN_NAME; }

  @Override public boolean supportsExternalMetadata() { return true; }

  @Override public StructType inferSchema(CaseInsensitiveStringMap options) {
    SessionRules.addToSession();
    isInferred = true;
    if (options.containsKey(CachedTables.REFRESH)) {
      CachedTables.refresh(options);
      description = CachedTables.emptyDescription();
    } else {
      description = Python.describe(tableOptions(options));
    }
    return description.schema();
  }

  @Override public Transform[] inferPartitioning(CaseInsensitiveStringMap options) {
    isInferred = true;
    return new Transform[0];
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitions, Map<String, String> properties) {
    SessionRules.addToSession();
    boolean inCatalog = properties.containsKey(TableCatalog.PROP_PROVIDER);
    ClusteringColumns.check(partitions, inCatalog);
    CaseInsensitiveStringMap options = tableOptions(new CaseInsensitiveStringMap(properties));
    boolean isView = properties.containsKey(Options.OF_VIEW);
    if (description != null) {
      return new LanceTable(options, description.schema(), description, false, isView);
    }
    if (inCatalog) {
      return catalogTable(schema, options);
    }
    if (isInferred && CallStack.contains("DataStreamWriter")) {
      return new LanceTable(options, schema, null, true);
    }
    if (isInferred) {
      return new LanceTable(options, schema, Python.describe(options, schema), false, isView);
    }
    // Only DataFrameWriter.save() loads a table without its schema or partitioning. Spark only
    // supports append and overwrite for such tables; for a table without capabilities it calls
    // createRelation below, which supports all four modes.
    return options.containsKey(SAVE)
        ? new LanceTable(options, schema, null, true) : new Unwritable(schema);
  }

  private static CaseInsensitiveStringMap tableOptions(CaseInsensitiveStringMap options) {
    return Options.without(Options.ofTable(options), Options.OF_VIEW);
  }

  private Table catalogTable(StructType schema, CaseInsensitiveStringMap options) {
    Description found = options.containsKey("path") ? Python.find(options) : null;
    // Spark compares this schema with the one in the CREATE TABLE statement.
    return new LanceTable(
        options, found == null || isDeclared(schema, found) ? schema : found.schema(), found, true);
  }

  /** Whether a statement declares the columns of the table as SHOW CREATE TABLE prints them. */
  private static boolean isDeclared(StructType schema, Description found) {
    return schema.sameType(CharVarcharUtils.getRawSchema(found.writeSchema()));
  }

  /** {@code df.write.format("lance").save(…)} in every mode. */
  @Override public BaseRelation createRelation(SQLContext context, SaveMode mode,
      scala.collection.immutable.Map<String, String> parameters, Dataset<Row> data) {
    SessionRules.addToSession();
    Map<String, String> options = new HashMap<>(CollectionConverters.asJava(parameters));
    ClusteringColumns.moveSaveOption(options);
    boolean isCreation = mode == SaveMode.ErrorIfExists || mode == SaveMode.Ignore;
    CaseInsensitiveStringMap writeOptions = new CaseInsensitiveStringMap(options);
    if (mode == SaveMode.ErrorIfExists) {
      Python.checkAbsent(writeOptions);
    }
    if (mode != SaveMode.Ignore || !Python.exists(writeOptions)) {
      options.put(SAVE, "true");
      if (isCreation) {
        options.put(Options.CREATE, "true");
      }
      CallStack.runAsUser(context.sparkSession().sparkContext(), () ->
          data.write().format(LanceSource.class.getName())
              .mode(isCreation ? SaveMode.Append : mode).options(options).save());
    }
    // The result of a save, which Spark does not read.
    return new BaseRelation() {
      @Override public SQLContext sqlContext() { return context; }

      @Override public StructType schema() { return data.schema(); }
    };
  }

  /** Python infers the partitioning. */
  @Override public boolean supportsDataType(DataType type) { return true; }

  /** A table without any capability. */
  private record Unwritable(StructType schema) implements Table {
    @Override public String name() { return "lance"; }

    @Override public Set<TableCapability> capabilities() { return Set.of(); }
  }
}
