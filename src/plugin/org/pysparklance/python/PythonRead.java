package org.pysparklance.python;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.types.StructType;

/**
 * The tasks of a read, planned by {@link LanceService}: each runs a function of Python in a worker.
 *
 * @param function the function, as Python pickles it
 * @param columns the columns of its rows
 */
public record PythonRead(byte[] function, StructType columns, InputPartition[] partitions) {
  /** The rows that hand over batches to a {@code BatchReader}. */
  private static final StructType MESSAGES = StructType.fromDDL(
      "acknowledge string, memory string, length bigint, bytes binary");

  /**
   * Plans a read.
   *
   * @param batches how batches with these columns are transferred to a {@code BatchReader}; null for
   *     rows
   */
  public static PythonRead plan(ScanRequest scan, StructType columns, String batches) {
    Frame response = new Request("plan_read").of(scan).with("columns", columns)
        .with("batches", batches).send();
    JsonNode plan = response.head().get("result");
    List<InputPartition> partitions = new ArrayList<>();
    for (byte[] one : response.allBytes(plan.get("partitions"))) {
      partitions.add(new PythonInputPartition(partitions.size(), one));
    }
    return new PythonRead(response.bytes(plan.get("function")),
        batches == null ? columns : MESSAGES, partitions.toArray(InputPartition[]::new));
  }

  public PartitionReaderFactory readers() { return PythonTasks.readers(function, columns); }

  public static CustomMetric[] metrics() { return PythonTasks.source().createPythonMetrics(); }
}
