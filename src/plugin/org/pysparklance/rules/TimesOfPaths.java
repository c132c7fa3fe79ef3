package org.pysparklance.rules;

import java.util.List;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.AnalysisHelper$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.SparkSession;
import org.pysparklance.catalog.PathCatalog;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Rewrites a path with a computed time, as in {@code lance.`/data/t` TIMESTAMP AS OF now()}, to a
 * name of three parts. Spark calls a catalog once it has evaluated the time, and by then has
 * resolved a name of two parts as a file.
 */
public final class TimesOfPaths extends Rule<LogicalPlan> {
  private final SparkSession session;

  public TimesOfPaths(SparkSession session) { this.session = session; }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (!plan.containsPattern(TreePattern.RELATION_TIME_TRAVEL())) {
      return plan;
    }
    // With SPARK_TESTING, Spark refuses rules that transform plans within its analyzer.
    return AnalysisHelper$.MODULE$.allowInvokingTransformsInAnalyzer(
        () -> (LogicalPlan) plan.transformUpWithSubqueries(new PathsWithTimes()));
  }

  private final class PathsWithTimes extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
    @Override public boolean isDefinedAt(LogicalPlan node) {
      return node instanceof RelationTimeTravel past && past.timestamp().isDefined()
          && past.relation() instanceof UnresolvedRelation named && isPath(parts(named));
    }

    @Override public LogicalPlan apply(LogicalPlan node) {
      RelationTimeTravel past = (RelationTimeTravel) node;
      return past.copy(withNamespace((UnresolvedRelation) past.relation()),
          past.timestamp(), past.version());
    }
  }

  private static List<String> parts(UnresolvedRelation named) {
    return CollectionConverters.asJava(named.multipartIdentifier());
  }

  private boolean isPath(List<String> parts) {
    return parts.size() == 2 && parts.get(1).contains("/")
        && PathCatalog.find(session, parts.get(0)).isPresent();
  }

  private static UnresolvedRelation withNamespace(UnresolvedRelation named) {
    List<String> whole = List.of(parts(named).get(0), PathCatalog.ROOT, parts(named).get(1));
    return named.copy(CollectionConverters.asScala(whole).toSeq(), named.options(),
        named.isStreaming());
  }
}
