package org.pysparklance.compat;

import java.util.List;

/**
 * Walks the stack, for three questions: Spark calls a catalog in the same way for different
 * statements, and passes nothing that distinguishes them. If a release of Spark calls other
 * methods, the tests that each of them names fail.
 */
public final class CallStack {
  private static final List<String> LOOKUPS = List.of("saveAsTable", "tableExists");

  private CallStack() {}

  /**
   * Whether a class with this name is among the callers: a writer of DataFrames, which names the
   * session's default provider if the user named none, or of streams, which loads its sink as a read
   * with a schema loads its table. Tests in tests/spark: plugin/test_refused_statements.py
   * ({@code DataFrameWriter}) and test_streams.py ({@code DataStreamWriter}).
   */
  public static boolean contains(String name) {
    return StackWalker.getInstance().walk(
        frames -> frames.anyMatch(frame -> frame.getClassName().contains(name)));
  }

  /**
   * Whether Spark looks a table up that may be missing. Two methods of Spark expect its own error
   * for it, and load it like all others. Tests in tests/spark: plugin/test_tables.py.
   */
  public static boolean isMissingTableLookup() {
    return StackWalker.getInstance().walk(
        frames -> frames.anyMatch(frame -> LOOKUPS.contains(frame.getMethodName())));
  }

  /**
   * Whether Spark compares the columns of a statement {@code WITH SCHEMA EVOLUTION} with those of
   * the table. Tests in tests/spark: plugin/test_session_tables.py.
   */
  public static boolean isSchemaEvolution() { return contains("SchemaEvolution"); }
}
