package org.pysparklance.python;

import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Streams, which Spark plans in processes of its own, with options only. Each needs a new source, as
 * Spark's caches its last plan.
 */
public final class PythonStreams {
  private PythonStreams() {}

  /** {@code title}: what the progress of queries calls the table. */
  public static MicroBatchStream read(CaseInsensitiveStringMap options, StructType columns,
      String checkpoint, String title) {
    return RestartableStream.of(title, withSessionSettings(options), readOptions ->
        ((SupportsRead) table(columns, readOptions)).newScanBuilder(readOptions).build()
            .toMicroBatchStream(checkpoint));
  }

  /** {@code splitBy} may be null. */
  public static StreamingWrite write(CaseInsensitiveStringMap options, String splitBy,
      LogicalWriteInfo info, boolean overwrites) {
    // Spark plans the write of each batch, so each one has the current settings.
    CaseInsensitiveStringMap settings = HadoopSettings.addTo(withSessionSettings(options));
    CaseInsensitiveStringMap writeOptions = Options.with(settings, "_lance.split_by", splitBy,
        "_lance.application", ActiveQuery.context().applicationId());
    WriteBuilder builder = ((SupportsWrite) table(info.schema(), writeOptions))
        .newWriteBuilder(new WriteInfo(writeOptions, info.queryId(), info.schema()));
    return (overwrites ? ((SupportsTruncate) builder).truncate() : builder).build().toStreaming();
  }

  private static Table table(StructType columns, CaseInsensitiveStringMap options) {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName("lance");
    return source.getTable(columns, new Transform[0], options.asCaseSensitiveMap());
  }

  /** With the session's settings: of times, ANSI mode, and how names compare. */
  private static CaseInsensitiveStringMap withSessionSettings(CaseInsensitiveStringMap options) {
    SQLConf session = SQLConf.get();
    return Options.with(options,
        "_lance.time_zone", session.sessionLocalTimeZone(),
        "_lance.ansi", String.valueOf(session.ansiEnabled()),
        "_lance.case_sensitive", String.valueOf(session.caseSensitiveAnalysis()),
        "_lance.plugin", Plugin.identity());
  }

  private record WriteInfo(CaseInsensitiveStringMap options, String queryId, StructType schema)
      implements LogicalWriteInfo {}
}
