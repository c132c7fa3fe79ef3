package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;
import org.pysparklance.read.LanceScan;
import scala.Option;
import scala.Product;

/**
 * Conditions that Spark finds after it made the scans, as it turns subqueries into joins. What
 * holds of a scan's rows anyway goes, or scans that are alike would differ by it and run twice;
 * what can leave out fragments and zones goes to the scan.
 */
final class LateFilters extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    LogicalPlan seen = (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
    return seen instanceof Filter filter
        && filter.child() instanceof DataSourceV2ScanRelation relation
        && relation.scan() instanceof LanceScan scan ? narrowed(filter, relation, scan) : seen;
  }

  private static LogicalPlan narrowed(
      Filter filter, DataSourceV2ScanRelation relation, LanceScan scan) {
    List<Predicate> more = new ArrayList<>();
    Expression left = null;
    for (Expression term : terms(filter.condition())) {
      Option<Predicate> known = DataSourceV2Strategy$.MODULE$.translateFilterV2(term);
      if (known.isDefined() && scan.canTest(known.get())) {
        more.add(known.get());
      } else if (known.isEmpty() || !scan.holds(known.get())) {
        left = left == null ? term : new And(left, term);
      }
    }
    if (left != null && left.semanticEquals(filter.condition())) {
      return filter;
    }
    LogicalPlan under = more.isEmpty() ? relation
        : with(relation, scan, scan.narrowed(more.toArray(Predicate[]::new)));
    return left == null ? under : new Filter(left, under);
  }

  private static List<Expression> terms(Expression condition) {
    if (!(condition instanceof And both)) {
      return List.of(condition);
    }
    List<Expression> all = new ArrayList<>(terms(both.left()));
    all.addAll(terms(both.right()));
    return all;
  }

  /** Spark makes scans anew to merge them, where they say so; it would not know of the condition. */
  private static LogicalPlan with(
      DataSourceV2ScanRelation relation, LanceScan before, LanceScan after) {
    Object[] parts = PlanParts.of(relation);
    for (int i = 0; i < parts.length; i++) {
      parts[i] = parts[i] == before ? after
          : ((Product) relation).productElementName(i).equals("mergeableScan") ? false : parts[i];
    }
    return (LogicalPlan) relation.makeCopy(parts);
  }
}
