package org.pysparklance.python;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** An error of the Python package, with its code and parts. */
public final class LanceException extends AnalysisException {
  private static final String NO_CODE = "LANCE_INTERNAL_ERROR";
  private static final String STORAGE = "LANCE_STORAGE";

  private final String retries;

  private LanceException(String code, String message, Map<String, String> parts, String retries) {
    super(message, Option.empty(), Option.empty(), Option.empty(), Option.apply(code),
        Map$.MODULE$.from(CollectionConverters.asScala(parts)), new QueryContext[0]);
    this.retries = retries;
  }

  /** The error of a response. */
  static LanceException of(JsonNode error) {
    String code = error.path("code").asText(NO_CODE);
    Map<String, String> parts = Map.of("what", error.path("what").asText(),
        "where", error.path("where").asText(), "hint", error.path("hint").asText());
    return new LanceException(code, error.path("message").asText(), parts,
        error.path("retries").asText(null));
  }

  /** The process ended while it served a request. */
  static LanceException lost(String method, String exit) {
    return storage("the Python process that plans and commits ended during " + method + " (" + exit + ")",
        "run the statement again; after a write, look first whether DESCRIBE HISTORY or "
            + "LanceTable.history() shows its version");
  }

  static LanceException notStarted(List<String> failures) {
    return storage("no Python of the driver can plan reads and writes of Lance tables: "
        + String.join("; ", failures),
        "pip install pyspark-lance for the Python that PYSPARK_PYTHON or spark.pyspark.python names");
  }

  private static LanceException storage(String what, String hint) {
    return new LanceException(STORAGE, "[" + STORAGE + "] " + what + "\n  hint: " + hint,
        Map.of("what", what, "where", "", "hint", hint), null);
  }

  /** Throws this, which Scala's methods need not declare. */
  RuntimeException raise() { throw LanceException.<RuntimeException>unchecked(this); }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E unchecked(Throwable error) throws E { throw (E) error; }

  /** The attempts that are left to a statement that lost a conflict; null if it shall not run again. */
  public String retries() { return retries; }
}
