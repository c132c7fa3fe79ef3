package org.pysparklance.python;

import static java.nio.charset.StandardCharsets.US_ASCII;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.function.Supplier;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonUtils$;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.errors.QueryCompilationErrors;
import org.apache.spark.sql.execution.datasources.v2.python.*;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What Spark has Python do on the driver for a read or a write. It starts a process of its own for
 * each step: to find all data sources, to make this one, to plan a read, to plan a write, to
 * commit; here the one that makes the source does them all, and nothing is looked for. Streams
 * still go Spark's way.
 */
final class DriverSteps {
  /** The class of the source as Python pickles it: by its name. */
  private static final byte[] BY_NAME = "cpyspark_lance\nDefaultSource\n.".getBytes(US_ASCII);
  private static final String NOT_THERE = "No module named 'pyspark_lance'";
  /** What is larger goes to a process of Spark's own, as it is: all partitions, all messages. */
  private static final String MOST = "spark.sql.lance.driverStepBytes";
  private static final String MOST_BYTES = "8m";

  /** Whether Spark has to look for the package, as Python does not find it by its name. */
  private static volatile boolean isLookedFor;
  /** Kept, since to make one Spark starts Python to ask for its version. */
  private static PythonFunction named;

  private DriverSteps() {}

  private static synchronized PythonFunction byName() {
    if (named == null) {
      named = PythonUtils$.MODULE$.createPythonFunction(BY_NAME);
    }
    return named;
  }

  /** Plans batch reads. */
  static class Source extends PythonDataSourceV2 {
    private PythonDataSourceReadInfo planned;

    Source() { setShortName("lance"); }

    @Override public UserDefinedPythonDataSource source() {
      return new Steps(isLookedFor ? super.source().dataSourceCls() : byName());
    }

    @Override public StructType inferSchema(CaseInsensitiveStringMap options) {
      try {
        return super.inferSchema(options);
      } catch (Exception error) {
        if (isLookedFor || !String.valueOf(error.getMessage()).contains(NOT_THERE)) {
          throw error;
        }
        isLookedFor = true;
        return super.inferSchema(options);
      }
    }

    @Override public synchronized PythonDataSourceReadInfo getOrCreateReadInfo(
        String name, CaseInsensitiveStringMap options, StructType columns, boolean isStreaming) {
      if (planned == null && !isStreaming && mostBytes() > 0) {
        planned = plan(options, columns);
      }
      return planned != null ? planned
          : super.getOrCreateReadInfo(name, options, columns, isStreaming);
    }

    /** Null where there is much to send. */
    private static PythonDataSourceReadInfo plan(
        CaseInsensitiveStringMap options, StructType columns) {
      JsonNode plan = told("initialize", "reader", () -> Python.ask("step.plan_read",
          Options.with(options, "_lance.step_columns", columns.json(),
              "_lance.step_bytes", Long.toString(mostBytes()))));
      if (!plan.has("function")) {
        return null;
      }
      List<byte[]> partitions = new ArrayList<>();
      plan.get("partitions").forEach(one -> partitions.add(bytes(one)));
      return new PythonDataSourceReadInfo(
          bytes(plan.get("function")), CollectionConverters.asScala(partitions).toSeq());
    }
  }

  /** Plans batch writes and commits them. Goes to executors, too. */
  private static final class Steps extends UserDefinedPythonDataSource {
    Steps(PythonFunction source) { super(source); }

    @Override public PythonDataSourceWriteInfo createWriteInfoInPython(String name,
        StructType rows, CaseInsensitiveStringMap options, boolean overwrites,
        boolean isStreaming) {
      if (isStreaming || mostBytes() == 0) {
        return super.createWriteInfoInPython(name, rows, options, overwrites, isStreaming);
      }
      JsonNode plan = told("initialize", "writer", () -> Python.ask("step.plan_write",
          Options.with(options, "_lance.step_columns", rows.json(),
              "_lance.step_overwrites", Boolean.toString(overwrites))));
      return new PythonDataSourceWriteInfo(
          bytes(plan.get("function")), bytes(plan.get("writer")));
    }

    @Override public void commitWriteInPython(
        byte[] writer, WriterCommitMessage[] messages, boolean isAbort) {
      ArrayNode texts = Python.JSON.createArrayNode();
      long size = 0;
      for (WriterCommitMessage one : messages) {
        byte[] message = one == null ? null : ((PythonWriterCommitMessage) one).pickledMessage();
        size += message == null ? 0 : message.length;
        texts.add(message == null ? null : text(message));
      }
      if (size >= mostBytes()) {
        super.commitWriteInPython(writer, messages, isAbort);
        return;
      }
      told("commit or abort", "write", () -> Python.ask(isAbort ? "step.abort" : "step.commit",
          Options.with(CaseInsensitiveStringMap.empty(), "_lance.step_writer", text(writer),
              "_lance.step_messages", texts.toString())));
    }
  }

  private static long mostBytes() {
    return JavaUtils.byteStringAsBytes(SQLConf.get().getConfString(MOST, MOST_BYTES));
  }

  private static String text(byte[] value) { return Base64.getEncoder().encodeToString(value); }

  private static byte[] bytes(JsonNode text) { return Base64.getDecoder().decode(text.asText()); }

  /** What a step answers; where it fails, the error says what it was, as Spark's own does. */
  private static JsonNode told(String action, String of, Supplier<JsonNode> step) {
    try {
      return step.get();
    } catch (Exception error) {
      Object failure = error instanceof AnalysisException analysis
          && analysis.getMessageParameters().containsKey("msg")
          ? QueryCompilationErrors.pythonDataSourceError(
              action, of, analysis.getMessageParameters().get("msg")) : error;
      throw DriverSteps.<RuntimeException>unchecked(failure);
    }
  }

  /** Scala's errors are not declared. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E unchecked(Object error) throws E { throw (E) error; }
}
