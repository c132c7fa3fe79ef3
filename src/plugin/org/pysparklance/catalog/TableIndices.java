package org.pysparklance.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;
import org.apache.spark.sql.catalyst.analysis.IndexAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchIndexException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.index.TableIndex;
import org.apache.spark.sql.connector.expressions.FieldReference;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.pysparklance.python.LanceException;
import org.pysparklance.python.Python;
import org.pysparklance.python.Responses;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** {@code CREATE INDEX} and {@code DROP INDEX}, which Python translates to procedures. */
final class TableIndices {
  private TableIndices() {}

  static TableIndex[] list(LanceTable table) {
    return Python.indices(table.options()).stream().map(TableIndices::read)
        .toArray(TableIndex[]::new);
  }

  private static TableIndex read(Responses.Index index) {
    NamedReference[] columns = Arrays.stream(index.columns())
        .map(path -> new FieldReference(
            CollectionConverters.asScala(Arrays.asList(path)).toSeq()))
        .toArray(NamedReference[]::new);
    return new TableIndex(index.name(), index.kind(), columns, Map.of(), new Properties());
  }

  static boolean has(LanceTable table, String name) {
    return Arrays.stream(list(table)).anyMatch(one -> one.indexName().equals(name));
  }

  static void create(LanceTable table, String name, NamedReference[] columns,
      Map<NamedReference, Map<String, String>> columnProperties, Map<String, String> properties) {
    if (has(table, name)) {
      throw LanceException.rethrow(
          new IndexAlreadyExistsException(name, table.name(), Option.empty()));
    }
    Responses.Call call = Python.createIndex(table.options(), name,
        Arrays.stream(columns).map(NamedReference::fieldNames).toList(),
        columnProperties.values().stream().anyMatch(one -> !one.isEmpty()), properties);
    run(table, call.procedure(), call.arguments());
  }

  static void drop(LanceTable table, String name) {
    if (!has(table, name)) {
      throw LanceException.rethrow(
          new NoSuchIndexException(name, table.name(), Option.empty()));
    }
    run(table, "drop_index", Python.JSON.createObjectNode().put("name", name));
  }

  private static void run(LanceTable table, String procedure, JsonNode arguments) {
    LanceProcedure.run(
        (SparkSession) SparkSession.active(), table.options(), procedure, arguments);
    table.forgetVersion();
  }
}
