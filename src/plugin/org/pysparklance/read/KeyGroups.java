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
import org.apache.spark.sql.connector.read.partitioning.KeyGroupedPartitioning;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.pysparklance.python.Python;
import org.pysparklance.python.PythonRead;
import org.pysparklance.python.Responses;
import org.pysparklance.python.ScanRequest;

/**
 * The partitioning key of each task of a scan, if zone maps prove that each task has one key.
 *
 * @param columns the columns of the key
 * @param keys the key of each task
 * @param tasks a digest of Python's tasks, to detect a different plan when they run
 */
record KeyGroups(List<String> columns, InternalRow[] keys, String tasks) {
  private static final List<DataType> UNSUPPORTED =
      List.of(DataTypes.FloatType, DataTypes.DoubleType, DataTypes.BinaryType);

  /** Requests the keys from Python; null if it knows none for these columns. */
  static KeyGroups of(
      ScanRequest request, StructType columns, Collection<String> candidates) {
    List<String> keyColumns =
        candidates.stream().filter(name -> isSupportedKey(columns, name)).toList();
    Responses.TaskKeys found =
        keyColumns.isEmpty() ? null : Python.taskKeys(request.byKey(keyColumns, null), columns);
    if (found == null) {
      return null;
    }
    InternalRow[] keys = IntStream.range(0, found.values().size())
        .mapToObj(i -> key(columns, found.columns(), found.values().get(i)))
        .toArray(InternalRow[]::new);
    return new KeyGroups(found.columns(), keys, found.tasks());
  }

  private static boolean isSupportedKey(StructType columns, String name) {
    return Arrays.asList(columns.fieldNames()).contains(name)
        && CatalystValues.canParse(columns.apply(name).dataType())
        && !UNSUPPORTED.contains(columns.apply(name).dataType());
  }

  private static InternalRow key(StructType columns, List<String> names, JsonNode values) {
    return new GenericInternalRow(IntStream.range(0, names.size()).mapToObj(i ->
        values.get(i).isNull() ? null
            : CatalystValues.parse(values.get(i).asText(), columns.apply(names.get(i)).dataType()))
        .toArray());
  }

  Partitioning partitioning() {
    return new KeyGroupedPartitioning(
        columns.stream().map(FieldReference::column).toArray(Expression[]::new), keys.length);
  }

  /** The request with which Python plans exactly these tasks. */
  ScanRequest with(ScanRequest request) { return request.byKey(columns, tasks); }

  /** The tasks of Python's read with their keys; an empty read has one task. */
  InputPartition[] withKeys(PythonRead plan) {
    if (keys.length == 0) {
      return new InputPartition[0];
    }
    InputPartition[] python = plan.partitions();
    if (python.length != keys.length) {
      throw new IllegalStateException(python.length + " tasks for " + keys.length + " keys");
    }
    return IntStream.range(0, keys.length).mapToObj(i -> new KeyedPartition(python[i], keys[i]))
        .toArray(InputPartition[]::new);
  }

  /** A task with one key. */
  record KeyedPartition(InputPartition python, InternalRow partitionKey)
      implements HasPartitionKey {
    static InputPartition unwrap(InputPartition one) {
      return one instanceof KeyedPartition partition ? partition.python() : one;
    }
  }
}
