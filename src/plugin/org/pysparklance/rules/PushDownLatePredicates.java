package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.ApplyFunctionExpression;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Contains;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.pysparklance.catalog.ContainsTokens;
import org.pysparklance.compat.PlanArguments;
import org.pysparklance.python.PredicateJson;
import org.pysparklance.read.LanceScan;
import scala.Option;
import scala.Product;
import scala.collection.immutable.Seq;

/**
 * Pushes conditions to scans that Spark did not push when it built the scan: those that it derives
 * later, when it rewrites subqueries to joins, LIKE, and contains_tokens. Conditions that are
 * always true for the rows of a scan are removed, since otherwise equal scans would differ and run
 * twice. Conditions that can prune rows are pushed, and columns that are no longer needed are
 * removed.
 */
final class PushDownLatePredicates extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    LogicalPlan node = (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
    if (node instanceof Project project) {
      return pruneColumns(project);
    }
    return node instanceof Filter filter
        && filter.child() instanceof DataSourceV2ScanRelation relation
        && relation.scan() instanceof LanceScan scan ? pushPredicates(filter, relation, scan)
        : node;
  }

  private static LogicalPlan pushPredicates(
      Filter filter, DataSourceV2ScanRelation relation, LanceScan scan) {
    List<Predicate> pushed = new ArrayList<>();
    Expression remaining = null;
    for (Expression term : splitConjuncts(filter.condition())) {
      Predicate predicate = translate(term);
      if (predicate != null && scan.canPush(predicate)) {
        pushed.add(predicate);
      } else if (predicate == null || !scan.isPushed(predicate)) {
        remaining = remaining == null ? term : new And(remaining, term);
      }
    }
    if (remaining != null && remaining.semanticEquals(filter.condition())) {
      return filter;
    }
    LogicalPlan child = pushed.isEmpty() ? relation
        : replaceScan(relation, scan.withPredicates(pushed.toArray(Predicate[]::new)),
        relation.output());
    return remaining == null ? child : new Filter(remaining, child);
  }

  static List<Expression> splitConjuncts(Expression condition) {
    if (!(condition instanceof And sides)) {
      return List.of(condition);
    }
    List<Expression> all = new ArrayList<>(splitConjuncts(sides.left()));
    all.addAll(splitConjuncts(sides.right()));
    return all;
  }

  /** Translates as Spark does for sources, and LIKE and contains_tokens; null for others. */
  private static Predicate translate(Expression term) {
    if (term instanceof ApplyFunctionExpression call
        && call.function() instanceof ContainsTokens) {
      return translateTokens(call);
    }
    Option<Predicate> predicate = DataSourceV2Strategy$.MODULE$.translateFilterV2(term);
    if (predicate.isDefined()) {
      return predicate.get();
    } else if (term instanceof Like like) {
      return translateLike(like);
    } else if (term instanceof Not not) {
      Predicate negated = translate(not.child());
      return negated == null ? null : new PushedPredicate("NOT", "NOT (" + negated + ")", negated);
    }
    Predicate left = term instanceof Or or ? translate(or.left()) : null;
    Predicate right = left == null ? null : translate(((Or) term).right());
    return right == null ? null
        : new PushedPredicate("OR", "(" + left + ") OR (" + right + ")", left, right);
  }

  /** A condition with LIKE, whose text Spark cannot build before 4.3: it would recurse forever. */
  private static final class PushedPredicate extends Predicate {
    private final String text;

    PushedPredicate(String name, String text,
        org.apache.spark.sql.connector.expressions.Expression... children) {
      super(name, children);
      this.text = text;
    }

    @Override public String toString() { return text; }
  }

  /** Both sides of a condition, translated as Spark does for others; null if it cannot. */
  private static org.apache.spark.sql.connector.expressions.Expression[] translateSides(
      Expression left, Expression right) {
    Option<Predicate> predicate = right instanceof Literal
        ? DataSourceV2Strategy$.MODULE$.translateFilterV2(new Contains(left, right))
        : Option.empty();
    return predicate.isEmpty() ? null : predicate.get().children();
  }

  private static Predicate translateTokens(ApplyFunctionExpression call) {
    var sides = translateSides(call.children().apply(0), call.children().apply(1));
    return sides == null ? null : new PushedPredicate(PredicateJson.CONTAINS_TOKENS,
        "contains_tokens(" + sides[0] + ", " + sides[1] + ")", sides[0], sides[1]);
  }

  private static Predicate translateLike(Like like) {
    var sides = translateSides(like.left(), like.right());
    if (sides == null) {
      return null;
    }
    String escape = String.valueOf(like.escapeChar());
    return new PushedPredicate(PredicateJson.LIKE,
        sides[0] + " LIKE " + sides[1] + " ESCAPE '" + escape + "'",
        sides[0], sides[1],
        new LiteralValue<>(UTF8String.fromString(escape), DataTypes.StringType));
  }

  /** Removes columns that only a pushed condition reads. */
  private static LogicalPlan pruneColumns(Project project) {
    Filter filter = project.child() instanceof Filter between ? between : null;
    LogicalPlan leaf = filter == null ? project.child() : filter.child();
    if (!(leaf instanceof DataSourceV2ScanRelation relation
        && relation.scan() instanceof LanceScan scan && scan.canPruneColumns())) {
      return project;
    }
    AttributeSet references = filter == null ? project.references()
        : project.references().$plus$plus(filter.references());
    List<AttributeReference> output = new ArrayList<>();
    StructType columns = new StructType();
    for (int i = 0; i < relation.output().size(); i++) {
      if (references.contains(relation.output().apply(i))) {
        output.add(relation.output().apply(i));
        columns = columns.add(scan.readSchema().fields()[i]);
      }
    }
    if (output.size() == relation.output().size() || output.isEmpty() && LanceScan.needsColumn()) {
      return project;
    }
    LogicalPlan pruned = replaceScan(
        relation, scan.withColumns(columns), Seqs.from(output));
    return project.copy(project.projectList(),
        filter == null ? pruned : filter.copy(filter.condition(), pruned));
  }

  /** Spark rebuilds scans to merge them, if they support that, and would lose the condition. */
  private static LogicalPlan replaceScan(
      DataSourceV2ScanRelation relation, LanceScan narrowed, Seq<AttributeReference> output) {
    Object[] parts = PlanArguments.of(relation);
    for (int i = 0; i < parts.length; i++) {
      parts[i] = parts[i] == relation.scan() ? narrowed : parts[i] == relation.output() ? output
          : ((Product) relation).productElementName(i).equals("mergeableScan") ? false : parts[i];
    }
    return (LogicalPlan) relation.makeCopy(parts);
  }
}
