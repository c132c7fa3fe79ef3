package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.IntegralType;
import org.pysparklance.compat.PlanArguments;
import org.pysparklance.read.LanceScan;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.math.BigInt;

/**
 * Adds the keys of the other side of a join to scans as a runtime filter. Spark only does so if a
 * selective condition on the other side makes a small number of keys likely; with an index the cost
 * of a key is known, so a small number of keys is sufficient.
 */
final class InjectIndexKeyFilter extends Rule<LogicalPlan> {
  /** Maximum bytes of the other side. */
  static final long MAX_BYTES = 64 << 20;

  @Override public LogicalPlan apply(LogicalPlan plan) {
    return conf().dynamicPartitionPruningEnabled() && conf().exchangeReuseEnabled()
        ? rewrite(plan) : plan;
  }

  private LogicalPlan rewrite(LogicalPlan plan) {
    LogicalPlan rewritten = (LogicalPlan) plan.mapChildren(child -> rewrite((LogicalPlan) child));
    if (!(rewritten instanceof Join join)) {
      return rewritten;
    }
    if (PartitionPruning.canPruneLeft(join.joinType()) && canFilter(join.left(), join.right())) {
      return withRuntimeFilter(join, join.left(), join.right(), true);
    }
    return PartitionPruning.canPruneRight(join.joinType()) && canFilter(join.right(), join.left())
        ? withRuntimeFilter(join, join.right(), join.left(), false) : join;
  }

  /** The join with a runtime filter on {@code side}, which is its left or its right one. */
  private Join withRuntimeFilter(Join join, LogicalPlan side, LogicalPlan other, boolean isLeft) {
    Seq<Expression> keys = joinKeys(join, isLeft);
    Seq<Expression> otherKeys = joinKeys(join, !isLeft);
    LogicalPlan keySide = other;
    boolean isBroadcast = isBroadcast(join, !isLeft);
    if (!isBroadcast) {
      boolean isSideBroadcast = isBroadcast(join, isLeft);
      boolean isShuffled = findScan(side).isForRowLevelOperation()
          && (!isSideBroadcast || isNeverBroadcast(join, isLeft));
      LogicalPlan filteredByBloom = isShuffled
          ? KeyBloomFilter.inject(side, keys, other, otherKeys, conf()) : null;
      if (filteredByBloom != null) {
        return withSides(join, filteredByBloom, repartition(other, otherKeys), isLeft);
      }
      boolean hasSmallKeys = findScan(side).isForRowLevelOperation() && !isSideBroadcast
          ? mayFitInMemory(other)
          : PartitionPruning.canBroadcastBySize(other, conf());
      if (!hasSmallKeys || isSideBroadcast && findScan(side).table().rows() <= LanceScan.MAX_KEYS) {
        return join;
      }
      keySide = repartition(other, otherKeys);
    }
    LogicalPlan filtered = filterSide(side, keys, keySide, otherKeys, isBroadcast);
    return filtered == side ? join : withSides(join, filtered, keySide, isLeft);
  }

  /** The join of other sides; {@code side} is its left or its right one. */
  private static Join withSides(Join join, LogicalPlan side, LogicalPlan other, boolean isLeft) {
    return join.copy(isLeft ? side : other, isLeft ? other : side, join.joinType(),
        join.condition(), join.hint());
  }

  /** A side that is partitioned as for the join, so that both reuse one exchange. */
  static LogicalPlan repartition(LogicalPlan side, Seq<Expression> keys) {
    return new RepartitionByExpression(keys, side, Option.empty(), Option.empty());
  }

  /** Whether one side of the join is broadcast. */
  private boolean isBroadcast(Join join, boolean isLeft) {
    return isBroadcast(join, isLeft, conf());
  }

  /** Whether a hint forbids it, as MERGE does where it counts the matches of each row. */
  private static boolean isNeverBroadcast(Join join, boolean isLeft) {
    return isLeft ? PartitionPruning.hintToNotBroadcastAndReplicateLeft(join.hint())
        : PartitionPruning.hintToNotBroadcastAndReplicateRight(join.hint());
  }

  static boolean isBroadcast(Join join, boolean isLeft, SQLConf conf) {
    boolean isPossible = isLeft ? PartitionPruning.canBuildBroadcastLeft(join.joinType())
        : PartitionPruning.canBuildBroadcastRight(join.joinType());
    boolean isHinted = isLeft ? PartitionPruning.hintToBroadcastLeft(join.hint())
        : PartitionPruning.hintToBroadcastRight(join.hint());
    return isPossible && (isHinted
        || PartitionPruning.canBroadcastBySize(isLeft ? join.left() : join.right(), conf));
  }

  /** Whether the number of rows may be small; that of Python rows or generators is unknown. */
  private boolean mayFitInMemory(LogicalPlan plan) {
    return plan.stats().sizeInBytes().$less$eq(BigInt.apply(MAX_BYTES))
        || hasUnknownSize(plan, conf());
  }

  /** Whether the size of a plan is unknown, as of Python rows or generators. */
  static boolean hasUnknownSize(LogicalPlan plan, SQLConf conf) {
    BigInt unknown = BigInt.apply(conf.defaultSizeInBytes());
    return plan.collectLeaves().exists(leaf -> leaf.stats().sizeInBytes().$greater$eq(unknown));
  }

  /** Whether one side is a Lance scan without a runtime filter, and the other side has its keys. */
  private static boolean canFilter(LogicalPlan side, LogicalPlan other) {
    return findScan(side) != null && !other.isStreaming() && other.deterministic();
  }

  static Seq<Expression> joinKeys(Join join, boolean isLeft) {
    var found = ExtractEquiJoinKeys.unapply(join);
    return found.isEmpty() ? Seqs.of()
        : isLeft ? found.get()._2() : found.get()._3();
  }

  /** The scan below projections and filters, if it has no runtime filter yet. */
  static LanceScan findScan(LogicalPlan side) {
    if (side instanceof Project
        || side instanceof Filter filter && !hasRuntimeFilter(filter.condition())) {
      return findScan(((UnaryNode) side).child());
    }
    return side instanceof DataSourceV2ScanRelation relation
        && relation.scan() instanceof LanceScan scan ? scan : null;
  }

  static boolean hasRuntimeFilter(Expression condition) {
    return condition.exists(
        part -> part instanceof DynamicPruning || part instanceof BloomFilterMightContain);
  }

  /** One side, with a runtime filter of its scan by keys of the other side. */
  private LogicalPlan filterSide(LogicalPlan side, Seq<Expression> keys, LogicalPlan other,
      Seq<Expression> otherKeys, boolean onlyInBroadcast) {
    LogicalPlan filtered = side;
    for (int i = 0; i < keys.size(); i++) {
      int ordinal = i;
      Expression key = keys.apply(i);
      filtered = onlyInBroadcast
          ? withRuntimeFilter(filtered, key,
              column -> runtimeFilter(column, other, otherKeys, ordinal, true))
          : withRuntimeFilter(filtered, removeUpcast(key),
              column -> limitedKeys(findScan(side), column, other, otherKeys.apply(ordinal)));
    }
    return filtered;
  }

  /** A column without a widening cast between integers. */
  private static Expression removeUpcast(Expression key) {
    return key instanceof Cast cast && cast.dataType() instanceof IntegralType wide
        && cast.child().dataType() instanceof IntegralType narrow
        && narrow.defaultSize() < wide.defaultSize() ? cast.child() : key;
  }

  /** The column below a projection; other expressions are unchanged. */
  static Expression resolveAlias(Expression key, Seq<NamedExpression> columns) {
    for (NamedExpression one : CollectionConverters.asJava(columns)) {
      if (one instanceof Alias alias && key instanceof Attribute attribute
          && alias.exprId().equals(attribute.exprId())) {
        return alias.child();
      }
    }
    return key;
  }

  private interface RuntimeFilter {
    Expression on(AttributeReference column);
  }

  private static LogicalPlan withRuntimeFilter(LogicalPlan side, Expression key,
      RuntimeFilter filterOn) {
    if (side instanceof Project project) {
      Expression childKey = resolveAlias(key, project.projectList());
      LogicalPlan child = withRuntimeFilter(project.child(), childKey, filterOn);
      return child == project.child() ? side : project.copy(project.projectList(), child);
    }
    if (side instanceof Filter filter) {
      LogicalPlan child = withRuntimeFilter(filter.child(), key, filterOn);
      return child == filter.child() ? side : filter.copy(filter.condition(), child);
    }
    DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) side;
    for (AttributeReference column : CollectionConverters.asJava(relation.output())) {
      if (key instanceof Attribute attribute && column.exprId().equals(attribute.exprId())
          && ((LanceScan) relation.scan()).prunableColumns()
              .anyMatch(one -> one.fieldNames()[0].equals(column.name()))) {
        return new Filter(filterOn.on(column), relation);
      }
    }
    return side;
  }

  /** The keys, up to a maximum: a scan ignores a filter of more keys. */
  private Expression limitedKeys(LanceScan scan, AttributeReference column, LogicalPlan other,
      Expression key) {
    // Numbers that overflow the type of the column match no row.
    Expression castKey = key.dataType().equals(column.dataType()) ? key
        : new Cast(key, column.dataType(), Option.empty(), EvalMode$.MODULE$.TRY());
    Alias alias = Aliases.of(castKey, column.name());
    Expression limit = Literal$.MODULE$.apply(scan.maxKeys(column.name()) + 1);
    LogicalPlan distinctKeys =
        PlanArguments.instantiate(Aggregate.class, Seqs.of(castKey), Seqs.of(alias),
        new Filter(new IsNotNull(castKey), other));
    return runtimeFilter(column, new GlobalLimit(limit, new LocalLimit(limit, distinctKeys)),
        Seqs.<Expression>of(alias.toAttribute()), 0, false);
  }

  static Expression runtimeFilter(AttributeReference column, LogicalPlan other,
      Seq<Expression> keys, int ordinal, boolean onlyInBroadcast) {
    return PlanArguments.instantiate(DynamicPruningSubquery.class, column, other, keys,
        Seqs.of(ordinal),
        onlyInBroadcast, NamedExpression$.MODULE$.newExprId());
  }
}
