package org.pysparklance.compat;

import java.lang.reflect.Field;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;

/**
 * Adds extensions to a session that runs already, where Spark would only read them when it creates
 * the session: it keeps the rules and the parser in private fields.
 */
public final class RunningSession {
  private RunningSession() {}

  /**
   * Adds rules of the analyzer, and the parser.
   *
   * @throws ReflectiveOperationException if Spark has other fields; then nothing is added
   */
  public static void add(SparkSession session, SparkSessionExtensions extensions)
      throws ReflectiveOperationException {
    Object analyzer = session.sessionState().analyzer();
    Field hints = field(analyzer, "hintResolutionRules");
    Field resolution = field(analyzer, "extendedResolutionRules");
    Field postHoc = field(analyzer, "postHocResolutionRules");
    Field parser = field(session.sessionState(), "sqlParser");
    append(hints, analyzer, extensions.buildHintResolutionRules(session));
    append(resolution, analyzer, extensions.buildResolutionRules(session));
    append(postHoc, analyzer, extensions.buildPostHocResolutionRules(session));
    parser.set(session.sessionState(),
        extensions.buildParser(session, session.sessionState().sqlParser()));
  }

  /** Whether the analyzer of a session has a rule of this class that runs before names are known. */
  public static boolean hasHintRule(SparkSession session, Class<?> rule) {
    return session.sessionState().analyzer().hintResolutionRules().exists(rule::isInstance);
  }

  private static Field field(Object owner, String name) throws NoSuchFieldException {
    for (Class<?> type = owner.getClass(); type != null; type = type.getSuperclass()) {
      for (Field field : type.getDeclaredFields()) {
        if (field.getName().equals(name)) {
          field.setAccessible(true);
          return field;
        }
      }
    }
    throw new NoSuchFieldException(name);
  }

  private static void append(Field rulesField, Object analyzer, Seq<Rule<LogicalPlan>> rules)
      throws IllegalAccessException {
    @SuppressWarnings("unchecked")
    Seq<Rule<LogicalPlan>> existing = (Seq<Rule<LogicalPlan>>) rulesField.get(analyzer);
    rulesField.set(analyzer, existing.appendedAll(rules));
  }
}
