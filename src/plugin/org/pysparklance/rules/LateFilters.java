package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
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
import org.pysparklance.python.PredicateJson;
import org.pysparklance.read.LanceScan;
import scala.Option;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Conditions that reach no scan while Spark makes it: those that it finds later, as it turns
 * subqueries into joins, and LIKE. What holds of a scan's rows anyway goes, or scans that are alike
 * would differ by it and run twice; what can leave out rows goes to the scan, and with it the
 * columns that nobody else wants.
 */
final class LateFilters extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    LogicalPlan seen = (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
    if (seen instanceof Project project) {
      return fewerColumns(project);
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

  /** As Spark translates conditions for sources, and besides those with LIKE; null for others. */
  private static Predicate translated(Expression term) {
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

  /** A condition with LIKE, which Spark knows no text of before 4.3: it would look for one for ever. */
  private static final class PushedPredicate extends Predicate {
    private final String text;

    PushedPredicate(String name, String text,
        org.apache.spark.sql.connector.expressions.Expression... children) {
      super(name, children);
      this.text = text;
    }

    @Override public String toString() { return text; }
  }

  /** Spark translates both sides as those of another condition. */
  private static Predicate pattern(Like like) {
    Option<Predicate> sides = like.right() instanceof Literal
        ? DataSourceV2Strategy$.MODULE$.translateFilterV2(new Contains(like.left(), like.right()))
        : Option.empty();
    if (sides.isEmpty()) {
      return null;
    }
    var both = sides.get().children();
    String escape = String.valueOf(like.escapeChar());
    return new PushedPredicate(PredicateJson.LIKE, both[0] + " LIKE " + both[1] + " ESCAPE '" + escape + "'",
        both[0], both[1], new LiteralValue<>(UTF8String.fromString(escape), DataTypes.StringType));
  }

  /** Without the columns that only a condition read which the scan tests now. */
  private static LogicalPlan fewerColumns(Project project) {
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
    if (output.size() == relation.output().size()) {
      return project;
    }
    LogicalPlan fewer = with(
        relation, scan.narrowed(columns), CollectionConverters.asScala(output).toSeq());
    return project.copy(project.projectList(),
        filter == null ? fewer : filter.copy(filter.condition(), fewer));
  }

  /** Spark makes scans anew to merge them, where they say so; it would not know of the condition. */
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
