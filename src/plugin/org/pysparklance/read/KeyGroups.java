package org.pysparklance.read;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.FieldReference;
import org.apache.spark.sql.connector.read.HasPartitionKey;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.partitioning.KeyGroupedPartitioning;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Options;
import org.pysparklance.python.Python;

/**
 * The key of each task of a scan, where zone maps prove that a task has rows of one key only.
 *
 * @param columns what the key is made of
 * @param keys that of each task
 * @param tasks tells Python's tasks from others, should it plan them in another way when they run
 */
record KeyGroups(List<String> columns, InternalRow[] keys, String tasks) {
  private static final List<DataType> UNFIT =
      List.of(DataTypes.FloatType, DataTypes.DoubleType, DataTypes.BinaryType);

  /** Asks Python; null if it cannot tell of any of these columns. */
  static KeyGroups of(
      CaseInsensitiveStringMap pinned, StructType columns, Collection<String> wanted) {
    List<String> own = wanted.stream().filter(name -> isKey(columns, name)).toList();
    JsonNode told = own.isEmpty() ? null : Python.call("keys", pinned,
        "_lance.schema", columns.json(), "_lance.key_columns", Python.json(own));
    if (told == null || told.isEmpty()) {
      return null;
    }
    List<String> found = IntStream.range(0, told.get("columns").size())
        .mapToObj(i -> told.get("columns").get(i).asText()).toList();
    InternalRow[] keys = IntStream.range(0, told.get("values").size())
        .mapToObj(i -> key(columns, found, told.get("values").get(i))).toArray(InternalRow[]::new);
    return new KeyGroups(found, keys, told.get("tasks").asText());
  }

  private static boolean isKey(StructType columns, String name) {
    return Arrays.asList(columns.fieldNames()).contains(name)
        && CountedValues.isKnown(columns.apply(name).dataType())
        && !UNFIT.contains(columns.apply(name).dataType());
  }

  private static InternalRow key(StructType columns, List<String> names, JsonNode values) {
    return new GenericInternalRow(IntStream.range(0, names.size()).mapToObj(i ->
        values.get(i).isNull() ? null
            : CountedValues.value(values.get(i).asText(), columns.apply(names.get(i)).dataType()))
        .toArray());
  }

  Partitioning partitioning() {
    return new KeyGroupedPartitioning(
        columns.stream().map(FieldReference::column).toArray(Expression[]::new), keys.length);
  }

  /** The options by which Python plans these tasks and no others. */
  CaseInsensitiveStringMap with(CaseInsensitiveStringMap pinned) {
    return Options.with(pinned, "_lance.key_columns", Python.json(columns), "_lance.key_tasks", tasks);
  }

  /** The tasks of Python's scan with their keys; of a scan without rows it has one all the same. */
  InputPartition[] keyed(Scan scan) {
    if (keys.length == 0) {
      return new InputPartition[0];
    }
    InputPartition[] python = scan.toBatch().planInputPartitions();
    if (python.length != keys.length) {
      throw new IllegalStateException(python.length + " tasks for " + keys.length + " keys");
    }
    return IntStream.range(0, keys.length).mapToObj(i -> new Keyed(python[i], keys[i]))
        .toArray(InputPartition[]::new);
  }

  /** A task of one key. */
  record Keyed(InputPartition python, InternalRow partitionKey) implements HasPartitionKey {
    static InputPartition inner(InputPartition one) {
      return one instanceof Keyed keyed ? keyed.python() : one;
    }
  }
}
