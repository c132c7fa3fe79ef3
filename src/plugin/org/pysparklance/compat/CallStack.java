package org.pysparklance.compat;

import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.spark.SparkContext;

/**
 * Walks the stack, for four questions: Spark calls a catalog in the same way for different
 * statements, and passes nothing that distinguishes them. If a release of Spark calls other
 * methods, the tests that each of them names fail.
 */
public final class CallStack {
  private static final List<String> LOOKUPS = List.of("saveAsTable", "tableExists");
  /** The classes that Spark passes over when it looks for the caller of a job, and the plugin's. */
  private static final Pattern INTERNAL = Pattern.compile("(org\\.pysparklance|scala)\\..*"
      + "|org\\.apache\\.spark\\.(sql\\.|((api\\.java|util|rdd|broadcast)\\.)?[A-Z]).*");
  private static final String CALL_SITE = "callSite.short";
  private static final String UNKNOWN_LINE = " at <unknown>:0";

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

  /**
   * Runs jobs under the name that Spark gives them if its user called it directly, such as
   * {@code save at Main.java:7}, and not under that of the plugin's method.
   * Tests in tests/spark: plugin/test_log_lines.py.
   */
  public static void runAsUser(SparkContext context, Runnable action) {
    if (context.getLocalProperty(CALL_SITE) != null) {
      action.run();
      return;
    }
    context.setLocalProperty(CALL_SITE, callSite());
    try {
      action.run();
    } finally {
      context.setLocalProperty(CALL_SITE, null);
    }
  }

  /** The last method of Spark before the code of the user, and the line that calls it. */
  private static String callSite() {
    List<StackWalker.StackFrame> frames = StackWalker
        .getInstance(StackWalker.Option.SHOW_REFLECT_FRAMES).walk(Stream::toList);
    String method = "<unknown>";
    for (StackWalker.StackFrame frame : frames) {
      if (!INTERNAL.matcher(frame.getClassName()).matches()) {
        // Calls by reflection are compiled to classes without a file once they are frequent.
        return frame.getFileName() == null ? method + UNKNOWN_LINE
            : method + " at " + frame.getFileName() + ":" + Math.max(frame.getLineNumber(), 0);
      }
      method = frame.getMethodName();
    }
    return method + UNKNOWN_LINE;
  }
}
