package org.pysparklance.python;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;
import org.apache.spark.sql.types.StructType;
import org.slf4j.LoggerFactory;

/** A batch write, planned and committed by {@link LanceService}: tasks run a function of Python. */
public final class PythonWrite implements BatchWrite {
  /**
   * The parameters of a write, of which all but the first may be null.
   *
   * @param replaceWhere the condition of the rows that are replaced
   * @param splitBy the columns that rows are sorted by, and whose values get separate files
   * @param sources by root, the oldest version that the query reads, and its stamp
   * @param change DELETE, UPDATE or MERGE
   * @param retries the attempts of earlier runs of the command
   * @param creation the table that the write creates
   * @param byColumns whether an UPDATE rewrites columns of whole fragments
   */
  public record Parameters(boolean overwrites, String replaceWhere, List<String> splitBy,
      JsonNode sources, String change, String retries, TableCreation creation,
      boolean byColumns) {}

  private final ScanRequest table;
  private final StructType rows;
  private final Parameters parameters;
  /** Commits what tasks wrote; null before the write is planned. */
  private byte[] writer;

  /**
   * @param table the options of the table; for a change also its version, and the condition of the
   *     rows that it reads
   */
  public PythonWrite(ScanRequest table, StructType rows, Parameters parameters) {
    this.table = table;
    this.rows = rows;
    this.parameters = parameters;
  }

  public static CustomMetric[] metrics() { return PythonTasks.source().createPythonMetrics(); }

  @Override public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
    Frame response = new Request("plan_write").of(table).creating(parameters.creation())
        .with("columns", rows)
        .with("overwrite", parameters.overwrites())
        .with("replace_where", parameters.replaceWhere())
        .with("split_by", parameters.splitBy()).with("sources", parameters.sources())
        .with("change", parameters.change()).with("retries", parameters.retries())
        .with("by_columns", parameters.byColumns()).send();
    JsonNode plan = response.head().get("result");
    writer = response.bytes(plan.get("writer"));
    return PythonTasks.writers(response.bytes(plan.get("function")), rows);
  }

  @Override public void commit(WriterCommitMessage[] messages) {
    new Request("commit").with("writer", writer).with("messages", bytes(messages)).send();
  }

  /**
   * Removes the files of a failed write, if possible: after an error here Spark would raise one of
   * its own in place of the error that the write failed with. Cleanup removes what is left.
   */
  @Override public void abort(WriterCommitMessage[] messages) {
    try {
      new Request("abort").with("writer", writer).with("messages", bytes(messages)).send();
    } catch (Exception error) {  // LanceException among them, which Scala does not declare
      LoggerFactory.getLogger(PythonWrite.class).warn("files of a failed write are left", error);
    }
  }

  /** Null for tasks that failed. */
  private static byte[][] bytes(WriterCommitMessage[] messages) {
    return Arrays.stream(messages)
        .map(one -> one == null ? null : ((PythonWriterCommitMessage) one).pickledMessage())
        .toArray(byte[][]::new);
  }
}
