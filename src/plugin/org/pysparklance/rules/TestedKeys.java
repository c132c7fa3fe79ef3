package org.pysparklance.rules;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.*;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.pysparklance.read.LanceScan;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Adds runtime filters to scans below a selective broadcast join: if a condition on the broadcast
 * side makes it likely that it has a small part of the keys, Python tests the keys, so that other
 * rows do not reach the JVM. For keys that an index finds, see {@link JoinedKeys}.
 */
final class TestedKeys extends Rule<LogicalPlan> {
  /** The minimum rows of a scan, as it has to wait for the other side of the join. */
  private static final long MIN_ROWS = 100_000;

  @Override public LogicalPlan apply(LogicalPlan plan) {
    return conf().dynamicPartitionPruningEnabled() && conf().exchangeReuseEnabled()
        ? new Query(plan, conf()).within(plan) : plan;
  }

  /** The keys of the broadcast side of a join, and the position of one of them. */
  private record Keys(LogicalPlan side, Seq<Expression> all, int place) {
    Expression on(AttributeReference column) {
      return JoinedKeys.runtimeFilter(column, side, all, place, true);
    }
  }

  /** A whole query. */
  private static final class Query {
    private final SQLConf conf;
    private final Map<LanceScan, Integer> times = new HashMap<>();

    Query(LogicalPlan plan, SQLConf conf) {
      this.conf = conf;
      for (LogicalPlan leaf : CollectionConverters.asJava(plan.collectLeaves())) {
        if (scan(leaf) != null) {
          times.merge(scan(leaf), 1, Integer::sum);
        }
      }
    }

    /** Rewrites one side first, as the runtime filter refers to that very plan. */
    LogicalPlan within(LogicalPlan plan) {
      if (!(plan instanceof Join join)) {
        return (LogicalPlan) plan.mapChildren(child -> within((LogicalPlan) child));
      }
      if (PartitionPruning.canPruneLeft(join.joinType())) {
        LogicalPlan right = within(join.right());
        LogicalPlan left = tested(join, join.left(), right, true);
        if (left != join.left() || !PartitionPruning.canPruneRight(join.joinType())) {
          return with(join, within(left), right);
        }
      }
      LogicalPlan left = within(join.left());
      return with(join, left, within(PartitionPruning.canPruneRight(join.joinType())
          ? tested(join, join.right(), left, false) : join.right()));
    }

    /** One side of a join, with runtime filters by the keys of the other side. */
    private LogicalPlan tested(Join join, LogicalPlan side, LogicalPlan other, boolean isLeft) {
      LogicalPlan fewer = side;
      Seq<Expression> own = JoinedKeys.keys(join, isLeft);
      Seq<Expression> others = JoinedKeys.keys(join, !isLeft);
      for (int i = 0; i < own.size(); i++) {
        if (own.apply(i) instanceof Attribute key) {
          Keys keys = JoinedKeys.isBroadcast(join, !isLeft, conf) && areFew(other, others.apply(i))
              ? new Keys(other, others, i) : within(other, others.apply(i));
          fewer = keys == null ? fewer : below(fewer, key, keys);
        }
      }
      return fewer;
    }

    /** The join keys within a plan that bound a column of its output; null if there are none. */
    private Keys within(LogicalPlan plan, Expression key) {
      if (!(key instanceof Attribute column)) {
        return null;
      } else if (plan instanceof Project project) {
        return within(project.child(), key(column, project.projectList()));
      } else if (plan instanceof Aggregate aggregate) {
        return within(aggregate.child(), group(column, aggregate));
      } else if (plan instanceof Filter filter) {
        return within(filter.child(), key);
      } else if (!(plan instanceof Join join)) {
        return null;
      } else {
        Keys found = PartitionPruning.canPruneLeft(join.joinType()) ? equal(join, column, false) : null;
        found = found == null && PartitionPruning.canPruneRight(join.joinType())
            ? equal(join, column, true) : found;
        return found != null || !isKept(join, column) ? found
            : within(isLeft(join, column) ? join.left() : join.right(), key);
      }
    }

    /** The keys of one side of a join, if a column equals one of them. */
    private Keys equal(Join join, Attribute column, boolean ofLeft) {
      LogicalPlan side = ofLeft ? join.left() : join.right();
      Seq<Expression> own = JoinedKeys.keys(join, ofLeft);
      Seq<Expression> others = JoinedKeys.keys(join, !ofLeft);
      for (int i = 0; i < own.size(); i++) {
        boolean isEqual = own.apply(i).semanticEquals(column)
            || others.apply(i).semanticEquals(column);
        if (isEqual && JoinedKeys.isBroadcast(join, ofLeft, conf) && areFew(side, own.apply(i))) {
          return new Keys(side, own, i);
        }
      }
      return null;
    }

    /**
     * Whether a plan is likely to have a small part of the keys of a table, and not too many to
     * broadcast. Spark would run it twice if it had a runtime filter itself.
     */
    private static boolean areFew(LogicalPlan plan, Expression key) {
      return !plan.isStreaming() && plan.deterministic() && plan.exists(Query::isSelective)
          && !plan.exists(part -> part instanceof Filter filter
              && JoinedKeys.isPruned(filter.condition()))
          && plan.collectLeaves().exists(leaf -> scan(leaf) != null
              && leaf.outputSet().intersect(key.references()).nonEmpty()
              && scan(leaf).table().rows() <= 10L * LanceScan.MAX_KEYS);
    }

    /** Whether a plan is likely to be selective. */
    private static boolean isSelective(LogicalPlan plan) {
      return plan instanceof Filter filter ? isSelective(filter.condition())
          : scan(plan) != null && scan(plan).isSelective();
    }

    private static boolean isSelective(Expression condition) {
      return condition instanceof And both ? isSelective(both.left()) || isSelective(both.right())
          : !(condition instanceof IsNotNull);
    }

    /** A plan, with a condition on a column of its scan. */
    private LogicalPlan below(LogicalPlan plan, Attribute key, Keys keys) {
      if (plan instanceof DataSourceV2ScanRelation relation) {
        return tested(relation, key, keys);
      } else if (plan instanceof Project project) {
        return renewed(project, key(key, project.projectList()), keys);
      } else if (plan instanceof Aggregate aggregate) {
        return renewed(aggregate, group(key, aggregate), keys);
      } else if (plan instanceof Filter filter) {
        return tests(filter.condition(), key) ? filter : renewed(filter, key, keys);
      } else if (plan instanceof Join join && isKept(join, key)) {
        return isLeft(join, key) ? with(join, below(join.left(), key, keys), join.right())
            : with(join, join.left(), below(join.right(), key, keys));
      }
      return plan;
    }

    /** Whether values depend on the rows before, such as increasing ids, which a filter changes. */
    private LogicalPlan renewed(LogicalPlan plan, Attribute key, Keys keys) {
      return key == null || plan.expressions().exists(one -> !one.deterministic()) ? plan
          : (LogicalPlan) plan.mapChildren(child -> below((LogicalPlan) child, key, keys));
    }

    private LogicalPlan tested(DataSourceV2ScanRelation relation, Attribute key, Keys keys) {
      LanceScan scan = scan(relation);
      for (AttributeReference column : CollectionConverters.asJava(relation.output())) {
        if (scan != null && column.exprId().equals(key.exprId()) && isWhole(column.dataType())
            && scan.testsKeys(column.name()) && times.getOrDefault(scan, 0) == 1
            && scan.table().rows() >= MIN_ROWS) {
          return new Filter(keys.on(column), relation);
        }
      }
      return relation;
    }
  }

  private static LanceScan scan(LogicalPlan leaf) {
    return leaf instanceof DataSourceV2ScanRelation relation
        && relation.scan() instanceof LanceScan scan ? scan : null;
  }

  private static boolean isLeft(Join join, Attribute key) {
    return join.left().outputSet().contains(key);
  }

  /** Whether the rows of a join with a key of one side do not depend on rows with other keys. */
  private static boolean isKept(Join join, Attribute key) {
    JoinType kind = join.joinType();
    return kind == Inner$.MODULE$ || (isLeft(join, key)
        ? kind == LeftOuter$.MODULE$ || kind == LeftSemi$.MODULE$ || kind == LeftAnti$.MODULE$
        : kind == RightOuter$.MODULE$);
  }

  private static boolean isWhole(DataType kind) {
    return kind.equals(DataTypes.IntegerType) || kind.equals(DataTypes.LongType)
        || kind.equals(DataTypes.DateType);
  }

  /** Whether a condition is a runtime filter of a column. */
  private static boolean tests(Expression condition, Attribute key) {
    return condition.exists(part -> part instanceof DynamicPruningSubquery asked
        && asked.pruningKey().references().contains(key));
  }

  /** The column of the child; null if it is computed. */
  private static Attribute key(Attribute key, Seq<NamedExpression> columns) {
    return JoinedKeys.inside(key, columns) instanceof Attribute column ? column : null;
  }

  /** The column of the child for a grouping column of an aggregate; otherwise null. */
  private static Attribute group(Attribute key, Aggregate aggregate) {
    Attribute inside = key(key, aggregate.aggregateExpressions());
    return inside != null
        && aggregate.groupingExpressions().exists(one -> one.semanticEquals(inside)) ? inside : null;
  }

  private static Join with(Join join, LogicalPlan left, LogicalPlan right) {
    return left == join.left() && right == join.right() ? join
        : join.copy(left, right, join.joinType(), join.condition(), join.hint());
  }
}
