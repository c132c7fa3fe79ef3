package org.pysparklance.python;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Calls of Python. Each scan and write needs a new {@code PythonSource}: it caches its last plan, so
 * two scans that share one would read each other's rows.
 */
public final class Python {
  /** The class of {@code format("lance")}, which identifies it for reads. */
  public static final String SOURCE = "org.pysparklance.LanceSource";
  public static final ObjectMapper JSON = new ObjectMapper();

  private static final StructType MESSAGES = StructType.fromDDL(
      "acknowledge string, memory string, length bigint, bytes binary");
  private static final String APPLICATION = "_lance.application";

  private Python() {}

  static CaseInsensitiveStringMap ofApplication(CaseInsensitiveStringMap options) {
    return Options.with(options, APPLICATION, Running.context().applicationId());
  }

  private static PythonDataSourceV2 source() { return new PythonSource(); }

  /** Names, in the syntax of an option. */
  public static String json(List<String> names) { return JSON.valueToTree(names).toString(); }

  /** Calls a method of the service that takes options and returns an object. */
  public static JsonNode call(String method, CaseInsensitiveStringMap options, String... pairs) {
    return callFrame(method, options, pairs).head().get("result");
  }

  /** As {@code call}, with the attachments of the response. */
  public static Frame callFrame(
      String method, CaseInsensitiveStringMap options, String... pairs) {
    CaseInsensitiveStringMap all = ofApplication(inSession(Options.with(options, pairs)));
    return ask(method, new Frame().with("options", JSON.valueToTree(all.asCaseSensitiveMap())));
  }

  static Frame ask(String method, Frame request) {
    EarlyWorkers.start(method);
    return LanceService.call(method, request);
  }

  /** Describes the version that {@code options} select; fails if there is none. */
  public static Description describe(CaseInsensitiveStringMap options) {
    return Description.of(call("describe", options));
  }

  /** As {@code describe}; null if there is no table. */
  public static Description find(CaseInsensitiveStringMap options) {
    JsonNode facts = call("find", options);
    return facts.has("missing") ? null : Description.of(facts);
  }

  /** With the session's settings: of times, ANSI mode, how names compare, and Hadoop's. */
  private static CaseInsensitiveStringMap inSession(CaseInsensitiveStringMap options) {
    SQLConf session = SQLConf.get();
    return Options.with(HadoopSettings.addTo(options),
        "_lance.time_zone", session.sessionLocalTimeZone(),
        "_lance.ansi", String.valueOf(session.ansiEnabled()),
        "_lance.case_sensitive", String.valueOf(session.caseSensitiveAnalysis()),
        "_lance.plugin", Plugin.identity());
  }

  public static Scan scan(CaseInsensitiveStringMap options, StructType columns) {
    CaseInsensitiveStringMap all = inSession(options);
    Table table = source().getTable(columns, new Transform[0], all.asCaseSensitiveMap());
    return ((SupportsRead) table).newScanBuilder(all).build();
  }

  /** A scan that transfers batches with these columns to a {@code BatchReader}. */
  public static Scan batches(CaseInsensitiveStringMap options, StructType columns, String way) {
    return scan(Options.with(options, "_lance.batches_of", columns.json(), "_lance.way", way),
        MESSAGES);
  }

  public static WriteBuilder write(
      CaseInsensitiveStringMap options, StructType rows, LogicalWriteInfo asked) {
    CaseInsensitiveStringMap all = ofApplication(inSession(options));
    LogicalWriteInfo info = new WriteInfo(all, asked.queryId(), rows);
    Table table = source().getTable(rows, new Transform[0], all.asCaseSensitiveMap());
    return ((SupportsWrite) table).newWriteBuilder(info);
  }

  private record WriteInfo(CaseInsensitiveStringMap options, String queryId, StructType schema)
      implements LogicalWriteInfo {}
}
