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
 * rows do not reach the JVM. For keys that an index finds, see {@link InjectIndexKeyFilter}.
 */
final class InjectBroadcastKeyFilter extends Rule<LogicalPlan> {
  /** The minimum rows of a scan, as it waits for the other side of the join. */
  private static final long MIN_ROWS = 100_000;

  @Override public LogicalPlan apply(LogicalPlan plan) {
    return conf().dynamicPartitionPruningEnabled() && conf().exchangeReuseEnabled()
        ? new Query(plan, conf()).rewrite(plan) : plan;
  }

  /** The keys of the broadcast side of a join, and the position of one of them. */
  private record Keys(LogicalPlan side, Seq<Expression> expressions, int ordinal) {
    Expression filter(AttributeReference column) {
      return InjectIndexKeyFilter.runtimeFilter(column, side, expressions, ordinal, true);
    }
  }

  /** A query. */
  private static final class Query {
    private final SQLConf conf;
    private final Map<LanceScan, Integer> scanCounts = new HashMap<>();

    Query(LogicalPlan plan, SQLConf conf) {
      this.conf = conf;
      for (LogicalPlan leaf : CollectionConverters.asJava(plan.collectLeaves())) {
        if (scan(leaf) != null) {
          scanCounts.merge(scan(leaf), 1, Integer::sum);
        }
      }
    }

    /** Rewrites one side first, as the runtime filter refers to that very plan. */
    LogicalPlan rewrite(LogicalPlan plan) {
      if (!(plan instanceof Join join)) {
        return (LogicalPlan) plan.mapChildren(child -> rewrite((LogicalPlan) child));
      }
      if (PartitionPruning.canPruneLeft(join.joinType())) {
        LogicalPlan right = rewrite(join.right());
        LogicalPlan left = filterSide(join, join.left(), right, true);
        if (left != join.left() || !PartitionPruning.canPruneRight(join.joinType())) {
          return with(join, rewrite(left), right);
        }
      }
      LogicalPlan left = rewrite(join.left());
      return with(join, left, rewrite(PartitionPruning.canPruneRight(join.joinType())
          ? filterSide(join, join.right(), left, false) : join.right()));
    }

    /** One side of a join, with runtime filters by the keys of the other side. */
    private LogicalPlan filterSide(Join join, LogicalPlan side, LogicalPlan other, boolean isLeft) {
      LogicalPlan filtered = side;
      Seq<Expression> keys = InjectIndexKeyFilter.joinKeys(join, isLeft);
      Seq<Expression> otherKeys = InjectIndexKeyFilter.joinKeys(join, !isLeft);
      for (int i = 0; i < keys.size(); i++) {
        if (keys.apply(i) instanceof Attribute key) {
          Keys pruningKeys = InjectIndexKeyFilter.isBroadcast(join, !isLeft, conf)
              && isSelectiveKeySide(other, otherKeys.apply(i))
              ? new Keys(other, otherKeys, i) : rewrite(other, otherKeys.apply(i));
          filtered = pruningKeys == null ? filtered : pushFilter(filtered, key, pruningKeys);
        }
      }
      return filtered;
    }

    /** The join keys within a plan that bound a column of its output; null if there are none. */
    private Keys rewrite(LogicalPlan plan, Expression key) {
      if (!(key instanceof Attribute column)) {
        return null;
      } else if (plan instanceof Project project) {
        return rewrite(project.child(), childColumn(column, project.projectList()));
      } else if (plan instanceof Aggregate aggregate) {
        return rewrite(aggregate.child(), groupingColumn(column, aggregate));
      } else if (plan instanceof Filter filter) {
        return rewrite(filter.child(), key);
      } else if (!(plan instanceof Join join)) {
        return null;
      } else {
        Keys keys = PartitionPruning.canPruneLeft(join.joinType()) ? equalKeys(join, column, false)
            : null;
        keys = keys == null && PartitionPruning.canPruneRight(join.joinType())
            ? equalKeys(join, column, true) : keys;
        return keys != null || !preservesRows(join, column) ? keys
            : rewrite(isLeft(join, column) ? join.left() : join.right(), key);
      }
    }

    /** The keys of one side of a join, if a column equals one of them. */
    private Keys equalKeys(Join join, Attribute column, boolean ofLeft) {
      LogicalPlan side = ofLeft ? join.left() : join.right();
      Seq<Expression> keys = InjectIndexKeyFilter.joinKeys(join, ofLeft);
      Seq<Expression> otherKeys = InjectIndexKeyFilter.joinKeys(join, !ofLeft);
      for (int i = 0; i < keys.size(); i++) {
        boolean isEqual = keys.apply(i).semanticEquals(column)
            || otherKeys.apply(i).semanticEquals(column);
        if (isEqual && InjectIndexKeyFilter.isBroadcast(join, ofLeft, conf)
            && isSelectiveKeySide(side, keys.apply(i))) {
          return new Keys(side, keys, i);
        }
      }
      return null;
    }

    /**
     * Whether a plan is likely to have a small part of the keys of a table, and not too many to
     * broadcast. Spark would run it twice if it had a runtime filter itself.
     */
    private static boolean isSelectiveKeySide(LogicalPlan plan, Expression key) {
      return !plan.isStreaming() && plan.deterministic() && plan.exists(Query::isSelective)
          && !plan.exists(part -> part instanceof Filter filter
              && InjectIndexKeyFilter.hasRuntimeFilter(filter.condition()))
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
    private LogicalPlan pushFilter(LogicalPlan plan, Attribute key, Keys keys) {
      if (plan instanceof DataSourceV2ScanRelation relation) {
        return filterSide(relation, key, keys);
      } else if (plan instanceof Project project) {
        return rewriteChild(project, childColumn(key, project.projectList()), keys);
      } else if (plan instanceof Aggregate aggregate) {
        return rewriteChild(aggregate, groupingColumn(key, aggregate), keys);
      } else if (plan instanceof Filter filter) {
        return hasFilterOf(filter.condition(), key) ? filter : rewriteChild(filter, key, keys);
      } else if (plan instanceof Join join && preservesRows(join, key)) {
        return isLeft(join, key) ? with(join, pushFilter(join.left(), key, keys), join.right())
            : with(join, join.left(), pushFilter(join.right(), key, keys));
      }
      return plan;
    }

    /** Whether values depend on the rows before, such as increasing ids, which a filter changes. */
    private LogicalPlan rewriteChild(LogicalPlan plan, Attribute key, Keys keys) {
      return key == null
          || plan.expressions().exists(expression -> !expression.deterministic()) ? plan
          : (LogicalPlan) plan.mapChildren(child -> pushFilter((LogicalPlan) child, key, keys));
    }

    private LogicalPlan filterSide(DataSourceV2ScanRelation relation, Attribute key, Keys keys) {
      LanceScan scan = scan(relation);
      for (AttributeReference column : CollectionConverters.asJava(relation.output())) {
        if (scan != null && column.exprId().equals(key.exprId())
            && isHashableInteger(column.dataType())
            && scan.canFilterKeys(column.name()) && scanCounts.getOrDefault(scan, 0) == 1
            && scan.table().rows() >= MIN_ROWS) {
          return new Filter(keys.filter(column), relation);
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
  private static boolean preservesRows(Join join, Attribute key) {
    JoinType joinType = join.joinType();
    return joinType == Inner$.MODULE$ || (isLeft(join, key)
        ? joinType == LeftOuter$.MODULE$ || joinType == LeftSemi$.MODULE$
        || joinType == LeftAnti$.MODULE$
        : joinType == RightOuter$.MODULE$);
  }

  private static boolean isHashableInteger(DataType type) {
    return type.equals(DataTypes.IntegerType) || type.equals(DataTypes.LongType)
        || type.equals(DataTypes.DateType);
  }

  /** Whether a condition is a runtime filter of a column. */
  private static boolean hasFilterOf(Expression condition, Attribute key) {
    return condition.exists(part -> part instanceof DynamicPruningSubquery pruning
        && pruning.pruningKey().references().contains(key));
  }

  /** The column of the child; null if it is computed. */
  private static Attribute childColumn(Attribute key, Seq<NamedExpression> columns) {
    return InjectIndexKeyFilter.resolveAlias(key, columns) instanceof Attribute column ? column
        : null;
  }

  /** The column of the child for a grouping column of an aggregate; otherwise null. */
  private static Attribute groupingColumn(Attribute key, Aggregate aggregate) {
    Attribute grouped = childColumn(key, aggregate.aggregateExpressions());
    return grouped != null
        && aggregate.groupingExpressions().exists(expression -> expression.semanticEquals(grouped))
        ? grouped : null;
  }

  private static Join with(Join join, LogicalPlan left, LogicalPlan right) {
    return left == join.left() && right == join.right() ? join
        : join.copy(left, right, join.joinType(), join.condition(), join.hint());
  }
}
