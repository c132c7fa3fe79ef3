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
import org.pysparklance.compat.PlanParts;
import org.pysparklance.python.PredicateJson;
import org.pysparklance.read.LanceScan;
import scala.Option;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Pushes conditions to scans that Spark did not push when it built the scan: those that it derives
 * later, when it rewrites subqueries to joins, LIKE, and contains_tokens. Conditions that are
 * always true for the rows of a scan are removed, since otherwise equal scans would differ and run
 * twice. Conditions that can prune rows are pushed, and columns that are no longer needed are
 * removed.
 */
final class LateFilters extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    LogicalPlan seen = (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
    if (seen instanceof Project project) {
      return pruneColumns(project);
    }
    return seen instanceof Filter filter
        && filter.child() instanceof DataSourceV2ScanRelation relation
        && relation.scan() instanceof LanceScan scan ? narrowed(filter, relation, scan) : seen;
  }

  private static LogicalPlan narrowed(
      Filter filter, DataSourceV2ScanRelation relation, LanceScan scan) {
    List<Predicate> more = new ArrayList<>();
    Expression left = null;
    for (Expression term : terms(filter.condition())) {
      Predicate known = translated(term);
      if (known != null && scan.canTest(known)) {
        more.add(known);
      } else if (known == null || !scan.holds(known)) {
        left = left == null ? term : new And(left, term);
      }
    }
    if (left != null && left.semanticEquals(filter.condition())) {
      return filter;
    }
    LogicalPlan under = more.isEmpty() ? relation
        : with(relation, scan.narrowed(more.toArray(Predicate[]::new)), relation.output());
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

  /** Translates as Spark does for sources, and LIKE and contains_tokens; null for others. */
  private static Predicate translated(Expression term) {
    if (term instanceof ApplyFunctionExpression call
        && call.function() instanceof ContainsTokens) {
      return tokens(call);
    }
    Option<Predicate> known = DataSourceV2Strategy$.MODULE$.translateFilterV2(term);
    if (known.isDefined()) {
      return known.get();
    } else if (term instanceof Like like) {
      return pattern(like);
    } else if (term instanceof Not not) {
      Predicate inner = translated(not.child());
      return inner == null ? null : new PushedPredicate("NOT", "NOT (" + inner + ")", inner);
    }
    Predicate left = term instanceof Or either ? translated(either.left()) : null;
    Predicate right = left == null ? null : translated(((Or) term).right());
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
  private static org.apache.spark.sql.connector.expressions.Expression[] sides(
      Expression left, Expression right) {
    Option<Predicate> known = right instanceof Literal
        ? DataSourceV2Strategy$.MODULE$.translateFilterV2(new Contains(left, right))
        : Option.empty();
    return known.isEmpty() ? null : known.get().children();
  }

  private static Predicate tokens(ApplyFunctionExpression call) {
    var both = sides(call.children().apply(0), call.children().apply(1));
    return both == null ? null : new PushedPredicate(PredicateJson.CONTAINS_TOKENS,
        "contains_tokens(" + both[0] + ", " + both[1] + ")", both[0], both[1]);
  }

  private static Predicate pattern(Like like) {
    var both = sides(like.left(), like.right());
    if (both == null) {
      return null;
    }
    String escape = String.valueOf(like.escapeChar());
    return new PushedPredicate(PredicateJson.LIKE, both[0] + " LIKE " + both[1] + " ESCAPE '" + escape + "'",
        both[0], both[1], new LiteralValue<>(UTF8String.fromString(escape), DataTypes.StringType));
  }

  /** Removes columns that only a pushed condition reads. */
  private static LogicalPlan pruneColumns(Project project) {
    Filter filter = project.child() instanceof Filter between ? between : null;
    LogicalPlan leaf = filter == null ? project.child() : filter.child();
    if (!(leaf instanceof DataSourceV2ScanRelation relation
        && relation.scan() instanceof LanceScan scan && scan.isFree())) {
      return project;
    }
    AttributeSet wanted = filter == null ? project.references()
        : project.references().$plus$plus(filter.references());
    List<AttributeReference> output = new ArrayList<>();
    StructType columns = new StructType();
    for (int i = 0; i < relation.output().size(); i++) {
      if (wanted.contains(relation.output().apply(i))) {
        output.add(relation.output().apply(i));
        columns = columns.add(scan.readSchema().fields()[i]);
      }
    }
    if (output.size() == relation.output().size() || output.isEmpty() && LanceScan.needsColumn()) {
      return project;
    }
    LogicalPlan fewer = with(
        relation, scan.narrowed(columns), CollectionConverters.asScala(output).toSeq());
    return project.copy(project.projectList(),
        filter == null ? fewer : filter.copy(filter.condition(), fewer));
  }

  /** Spark rebuilds scans to merge them, if they support that, and would lose the condition. */
  private static LogicalPlan with(
      DataSourceV2ScanRelation relation, LanceScan after, Seq<AttributeReference> output) {
    Object[] parts = PlanParts.of(relation);
    for (int i = 0; i < parts.length; i++) {
      parts[i] = parts[i] == relation.scan() ? after : parts[i] == relation.output() ? output
          : ((Product) relation).productElementName(i).equals("mergeableScan") ? false : parts[i];
    }
    return (LogicalPlan) relation.makeCopy(parts);
  }
}
