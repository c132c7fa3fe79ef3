package org.pysparklance.python;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** An error of the Python package; its message begins with its code. */
public final class LanceException extends AnalysisException {
  /** An error condition of Spark, as PySpark looks up its text when it shows or logs an error. */
  private static final String CONDITION = "PYTHON_DATA_SOURCE_ERROR";
  private static final String STORAGE = "LANCE_STORAGE";

  private static final String TABLE_EXISTS = "LANCE_TABLE_ALREADY_EXISTS";

  private final String code;
  private final String retries;

  private LanceException(String code, String message, String retries) {
    super(message, Option.empty(), Option.empty(), Option.empty(), Option.apply(CONDITION),
        Map$.MODULE$.from(CollectionConverters.asScala(
            Map.of("action", "use", "type", "lance", "msg", message))), new QueryContext[0]);
    this.code = code;
    this.retries = retries;
  }

  /** The error of a response. */
  static LanceException of(JsonNode error) {
    return new LanceException(error.path("code").asText(), error.path("message").asText(),
        error.path("retries").asText(null));
  }

  /** The process ended while it served a request. */
  static LanceException processEnded(String method, String exit) {
    String problem =
        "the Python process that plans and commits ended during " + method + " (" + exit + ")";
    return method.equals("commit")
        ? storage(problem + ", so whether the rows were committed is unknown",
            "look whether DESCRIBE HISTORY or LanceTable.history() shows a new version with them; "
                + "if not, run the statement again")
        : storage(problem, "run the statement again; after a write, look first whether DESCRIBE "
            + "HISTORY or LanceTable.history() shows its version");
  }

  static LanceException notStarted(List<String> failures) {
    return storage("no Python of the driver can plan reads and writes of Lance tables: "
        + String.join("; ", failures),
        "activate the environment that has pyspark-lance before you start Spark, or set "
            + "PYSPARK_PYTHON to its Python, which is sys.executable in a notebook");
  }

  private static LanceException storage(String problem, String hint) {
    return new LanceException(STORAGE, "[" + STORAGE + "] " + problem + "\n  hint: " + hint, null);
  }

  /** Throws this without declaring it. */
  RuntimeException raise() { return LanceException.rethrow(this); }

  /** Throws a checked exception, which Scala's methods do not declare. */
  public static RuntimeException rethrow(Throwable error) {
    throw LanceException.<RuntimeException>unchecked(error);
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E unchecked(Throwable error) throws E { throw (E) error; }

  /** Whether a table that was to be created exists. */
  public boolean isTableExists() { return code.equals(TABLE_EXISTS); }

  /** The retry state of a statement after a conflict; null if it must not run again. */
  public String retries() { return retries; }
}
