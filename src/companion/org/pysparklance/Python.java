package org.pysparklance;

import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The Python source. Each use takes a new {@code PythonDataSourceV2}: it remembers what it planned
 * last, and two scans that share one would read each other's rows.
 */
final class Python {
  private static final String REPLY = "_lance";

  private Python() {}

  private static PythonDataSourceV2 source() {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName("lance");
    return source;
  }

  /** Asks Python something: options go in, the metadata of the first column come back. */
  static Metadata call(String question, CaseInsensitiveStringMap options, String... pairs) {
    return ask(question, options, pairs).fields()[0].metadata().getMetadata(REPLY);
  }

  static StructType ask(
      String question, CaseInsensitiveStringMap options, String... pairs) {
    CaseInsensitiveStringMap all = Options.with(options, pairs);
    return source().inferSchema(Options.with(all, "_lance.call", question));
  }

  /** The version that {@code options} ask for; fails when there is none. */
  static Description describe(CaseInsensitiveStringMap options) {
    return described(ask("describe", options));
  }

  /** As {@code describe}; null when there is no table. */
  static Description find(CaseInsensitiveStringMap options) {
    StructType answer = ask("find", options);
    Metadata facts = answer.fields()[0].metadata().getMetadata(REPLY);
    return facts.contains("missing") ? null : described(answer);
  }

  private static Description described(StructType answer) {
    StructField[] fields = answer.fields().clone();
    Metadata facts = fields[0].metadata().getMetadata(REPLY);
    Metadata rest =
        new MetadataBuilder().withMetadata(fields[0].metadata()).remove(REPLY).build();
    fields[0] =
        new StructField(fields[0].name(), fields[0].dataType(), fields[0].nullable(), rest);
    return new Description(new StructType(fields), facts);
  }

  static Scan scan(CaseInsensitiveStringMap options, StructType columns) {
    Table table = source().getTable(columns, new Transform[0], options.asCaseSensitiveMap());
    return ((SupportsRead) table).newScanBuilder(options).build();
  }

  static WriteBuilder write(LogicalWriteInfo info) {
    Table table =
        source().getTable(info.schema(), new Transform[0], info.options().asCaseSensitiveMap());
    return ((SupportsWrite) table).newWriteBuilder(info);
  }
}
