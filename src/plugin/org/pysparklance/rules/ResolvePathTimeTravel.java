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
public final class ResolvePathTimeTravel extends Rule<LogicalPlan> {
  private final SparkSession session;

  public ResolvePathTimeTravel(SparkSession session) { this.session = session; }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (!plan.containsPattern(TreePattern.RELATION_TIME_TRAVEL())) {
      return plan;
    }
    // With SPARK_TESTING, Spark refuses rules that transform plans within its analyzer.
    return AnalysisHelper$.MODULE$.allowInvokingTransformsInAnalyzer(
        () -> (LogicalPlan) plan.transformUpWithSubqueries(new TimeTravelPaths()));
  }

  private final class TimeTravelPaths extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
    @Override public boolean isDefinedAt(LogicalPlan node) {
      return node instanceof RelationTimeTravel travel && travel.timestamp().isDefined()
          && travel.relation() instanceof UnresolvedRelation relation
          && isPath(nameParts(relation));
    }

    @Override public LogicalPlan apply(LogicalPlan node) {
      RelationTimeTravel travel = (RelationTimeTravel) node;
      return travel.copy(withNamespace((UnresolvedRelation) travel.relation()),
          travel.timestamp(), travel.version());
    }
  }

  private static List<String> nameParts(UnresolvedRelation relation) {
    return CollectionConverters.asJava(relation.multipartIdentifier());
  }

  private boolean isPath(List<String> parts) {
    return parts.size() == 2 && parts.get(1).contains("/")
        && PathCatalog.find(session, parts.get(0)).isPresent();
  }

  private static UnresolvedRelation withNamespace(UnresolvedRelation relation) {
    List<String> nameParts =
        List.of(nameParts(relation).get(0), PathCatalog.ROOT, nameParts(relation).get(1));
    return relation.copy(Seqs.from(nameParts), relation.options(),
        relation.isStreaming());
  }
}
