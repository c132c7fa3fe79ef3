package org.pysparklance.python;

import static java.nio.charset.StandardCharsets.US_ASCII;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonUtils$;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.*;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.LoggerFactory;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's plan of a Python source, with the steps on the driver done by {@link LanceService}: Spark
 * starts a process for each, to find all data sources, to create this one, to plan a read, to plan a
 * write, to commit. Streams still use Spark's processes.
 */
class PythonSource extends PythonDataSourceV2 {
  /** The class of the source as Python pickles it: by its name. */
  private static final byte[] BY_NAME = "cpyspark_lance\nDefaultSource\n.".getBytes(US_ASCII);
  /** Cached, since Spark starts Python for its version to create one. */
  private static PythonFunction named;

  private PythonDataSourceReadInfo planned;

  PythonSource() { setShortName("lance"); }

  private static synchronized PythonFunction byName() {
    if (named == null) {
      named = PythonUtils$.MODULE$.createPythonFunction(BY_NAME);
    }
    return named;
  }

  @Override public UserDefinedPythonDataSource source() { return new Writes(byName()); }

  @Override public synchronized PythonDataSourceReadInfo getOrCreateReadInfo(
      String name, CaseInsensitiveStringMap options, StructType columns, boolean isStreaming) {
    if (isStreaming) {
      return super.getOrCreateReadInfo(name, options, columns, true);
    }
    if (planned == null) {
      planned = plan(options, columns);
    }
    return planned;
  }

  private static PythonDataSourceReadInfo plan(
      CaseInsensitiveStringMap options, StructType columns) {
    Frame response = Python.ask("plan_read", new Frame()
        .with("options", json(Python.ofApplication(options))).with("columns", columns.json()));
    JsonNode plan = response.head().get("result");
    List<byte[]> partitions = new ArrayList<>();
    plan.get("partitions").forEach(one -> partitions.add(response.bytes(one)));
    return new PythonDataSourceReadInfo(
        response.bytes(plan.get("function")), CollectionConverters.asScala(partitions).toSeq());
  }

  private static JsonNode json(CaseInsensitiveStringMap options) {
    return Python.JSON.valueToTree(options.asCaseSensitiveMap());
  }

  /** Plans batch writes and commits them. Serialized to executors, too. */
  private static final class Writes extends UserDefinedPythonDataSource {
    Writes(PythonFunction source) { super(source); }

    @Override public PythonDataSourceWriteInfo createWriteInfoInPython(String name,
        StructType rows, CaseInsensitiveStringMap options, boolean overwrites,
        boolean isStreaming) {
      if (isStreaming) {
        return super.createWriteInfoInPython(name, rows, options, overwrites, true);
      }
      Frame response = Python.ask("plan_write", new Frame().with("options", json(options))
          .with("columns", rows.json()).with("overwrite", Python.JSON.valueToTree(overwrites)));
      JsonNode plan = response.head().get("result");
      return new PythonDataSourceWriteInfo(
          response.bytes(plan.get("function")), response.bytes(plan.get("writer")));
    }

    @Override public void commitWriteInPython(
        byte[] writer, WriterCommitMessage[] messages, boolean isAbort) {
      Frame request = new Frame();
      ArrayNode written = Python.JSON.createArrayNode();
      for (WriterCommitMessage one : messages) {
        written.add(request.attach(
            one == null ? null : ((PythonWriterCommitMessage) one).pickledMessage()));
      }
      request.with("writer", request.attach(writer)).with("messages", written);
      if (isAbort) {
        abort(request);
      } else {
        Python.ask("commit", request);
      }
    }

    /**
     * Removes the files of a failed write, if possible: after an error here Spark would raise one of
     * its own in place of the error that the write failed with. Cleanup removes what is left.
     */
    private static void abort(Frame request) {
      try {
        Python.ask("abort", request);
      } catch (Exception error) {  // LanceException among them, which Scala does not declare
        LoggerFactory.getLogger(PythonSource.class).warn("files of a failed write are left", error);
      }
    }
  }
}
