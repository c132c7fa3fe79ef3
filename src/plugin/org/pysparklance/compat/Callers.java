package org.pysparklance.compat;

import java.util.List;

/**
 * Looks at the stack, of which there are two: Spark calls a source in the same way for different
 * statements, and passes nothing that distinguishes them. If a release of Spark calls other
 * methods, tests fail that each of them names.
 */
public final class Callers {
  private static final List<String> LOOKUPS = List.of("saveAsTable", "tableExists");

  private Callers() {}

  /**
   * Whether a method of a class with this text in its name is among the callers. Spark loads a
   * table of a source by the same call for a read, a view, a stream or CREATE TABLE. Tests in
   * tests/spark: plugin/test_session_tables.py (views, {@code TableAsSelect}),
   * plugin/test_refused_statements.py ({@code DataFrameWriter}), plugin/test_statistics.py
   * (DESCRIBE) and test_streams.py.
   */
  public static boolean areIn(String name) {
    return StackWalker.getInstance().walk(
        frames -> frames.anyMatch(frame -> frame.getClassName().contains(name)));
  }

  /**
   * Whether Spark looks a table up that may be missing. Two methods of Spark expect its own error
   * for it, and load it like all others. Tests in tests/spark: plugin/test_tables.py.
   */
  public static boolean lookUpMissingTable() {
    return StackWalker.getInstance().walk(
        frames -> frames.anyMatch(frame -> LOOKUPS.contains(frame.getMethodName())));
  }
}
