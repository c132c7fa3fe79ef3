package org.pysparklance.rules;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.IntegralType;
import org.pysparklance.compat.PlanParts;
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
final class JoinedKeys extends Rule<LogicalPlan> {
  /** Maximum bytes of the other side. */
  static final long MAX_BYTES = 64 << 20;

  @Override public LogicalPlan apply(LogicalPlan plan) {
    return conf().dynamicPartitionPruningEnabled() && conf().exchangeReuseEnabled()
        ? within(plan) : plan;
  }

  private LogicalPlan within(LogicalPlan plan) {
    LogicalPlan whole = (LogicalPlan) plan.mapChildren(child -> within((LogicalPlan) child));
    if (!(whole instanceof Join join)) {
      return whole;
    }
    if (PartitionPruning.canPruneLeft(join.joinType()) && canPrune(join.left(), join.right())) {
      return withRuntimeFilter(join, join.left(), join.right(), true);
    }
    return PartitionPruning.canPruneRight(join.joinType()) && canPrune(join.right(), join.left())
        ? withRuntimeFilter(join, join.right(), join.left(), false) : join;
  }

  /** The join with a runtime filter on {@code side}, which is its left or its right one. */
  private Join withRuntimeFilter(Join join, LogicalPlan side, LogicalPlan other, boolean isLeft) {
    Seq<Expression> own = keys(join, isLeft);
    Seq<Expression> others = keys(join, !isLeft);
    LogicalPlan keysSide = other;
    boolean isBroadcast = isBroadcast(join, !isLeft);
    if (!isBroadcast) {
      boolean isSmall = isBroadcast(join, isLeft);
      boolean isShuffled = scan(side).isOfRowChange()
          && (!isSmall || isNeverBroadcast(join, isLeft));
      LogicalPlan fewer = isShuffled ? KeyFilter.on(side, own, other, others, conf()) : null;
      if (fewer != null) {
        return withSides(join, fewer, repartitioned(other, others), isLeft);
      }
      boolean hasSmallKeys = scan(side).isOfRowChange() && !isSmall ? mayBeSmall(other)
          : PartitionPruning.canBroadcastBySize(other, conf());
      if (!hasSmallKeys || isSmall && scan(side).table().rows() <= LanceScan.MAX_KEYS) {
        return join;
      }
      keysSide = repartitioned(other, others);
    }
    LogicalPlan filtered = filteredSide(side, own, keysSide, others, isBroadcast);
    return filtered == side ? join : withSides(join, filtered, keysSide, isLeft);
  }

  /** The join of other sides; {@code side} is its left or its right one. */
  private static Join withSides(Join join, LogicalPlan side, LogicalPlan other, boolean isLeft) {
    return join.copy(isLeft ? side : other, isLeft ? other : side, join.joinType(),
        join.condition(), join.hint());
  }

  /** A side that is partitioned as for the join, so that both reuse one exchange. */
  static LogicalPlan repartitioned(LogicalPlan side, Seq<Expression> keys) {
    return new RepartitionByExpression(keys, side, Option.empty(), Option.empty());
  }

  /** Whether one side of the join is broadcast. */
  private boolean isBroadcast(Join join, boolean left) { return isBroadcast(join, left, conf()); }

  /** Whether a hint forbids it, as MERGE does where it counts the matches of each row. */
  private static boolean isNeverBroadcast(Join join, boolean left) {
    return left ? PartitionPruning.hintToNotBroadcastAndReplicateLeft(join.hint())
        : PartitionPruning.hintToNotBroadcastAndReplicateRight(join.hint());
  }

  static boolean isBroadcast(Join join, boolean left, SQLConf conf) {
    boolean isPossible = left ? PartitionPruning.canBuildBroadcastLeft(join.joinType())
        : PartitionPruning.canBuildBroadcastRight(join.joinType());
    boolean isHinted = left ? PartitionPruning.hintToBroadcastLeft(join.hint())
        : PartitionPruning.hintToBroadcastRight(join.hint());
    return isPossible && (isHinted
        || PartitionPruning.canBroadcastBySize(left ? join.left() : join.right(), conf));
  }

  /** Whether the number of rows may be small; that of Python rows or generators is unknown. */
  private boolean mayBeSmall(LogicalPlan plan) {
    return plan.stats().sizeInBytes().$less$eq(BigInt.apply(MAX_BYTES)) || isUnknown(plan, conf());
  }

  /** Whether the size of a plan is unknown, as of Python rows or generators. */
  static boolean isUnknown(LogicalPlan plan, SQLConf conf) {
    BigInt unknown = BigInt.apply(conf.defaultSizeInBytes());
    return plan.collectLeaves().exists(leaf -> leaf.stats().sizeInBytes().$greater$eq(unknown));
  }

  /** Whether one side is a Lance scan without a runtime filter, and the other side has its keys. */
  private static boolean canPrune(LogicalPlan side, LogicalPlan other) {
    return scan(side) != null && !other.isStreaming() && other.deterministic();
  }

  static Seq<Expression> keys(Join join, boolean ofLeft) {
    var found = ExtractEquiJoinKeys.unapply(join);
    return found.isEmpty() ? CollectionConverters.asScala(List.<Expression>of()).toSeq()
        : ofLeft ? found.get()._2() : found.get()._3();
  }

  /** The scan below projections and filters, if it has no runtime filter yet. */
  static LanceScan scan(LogicalPlan side) {
    if (side instanceof Project || side instanceof Filter filter && !isPruned(filter.condition())) {
      return scan(((UnaryNode) side).child());
    }
    return side instanceof DataSourceV2ScanRelation relation
        && relation.scan() instanceof LanceScan scan ? scan : null;
  }

  static boolean isPruned(Expression condition) {
    return condition.exists(
        part -> part instanceof DynamicPruning || part instanceof BloomFilterMightContain);
  }

  /** One side, with a runtime filter of its scan by keys of the other side. */
  private LogicalPlan filteredSide(LogicalPlan side, Seq<Expression> own, LogicalPlan other,
      Seq<Expression> others, boolean onlyInBroadcast) {
    LogicalPlan narrowed = side;
    for (int i = 0; i < own.size(); i++) {
      int place = i;
      Expression key = own.apply(i);
      narrowed = onlyInBroadcast
          ? withRuntimeFilter(narrowed, key,
              column -> runtimeFilter(column, other, others, place, true))
          : withRuntimeFilter(narrowed, narrow(key),
              column -> limitedKeys(scan(side), column, other, others.apply(place)));
    }
    return narrowed;
  }

  /** A column without a widening cast between integers. */
  private static Expression narrow(Expression key) {
    return key instanceof Cast cast && cast.dataType() instanceof IntegralType wide
        && cast.child().dataType() instanceof IntegralType own
        && own.defaultSize() < wide.defaultSize() ? cast.child() : key;
  }

  /** The column below a projection; other expressions are unchanged. */
  static Expression inside(Expression key, Seq<NamedExpression> columns) {
    for (NamedExpression one : CollectionConverters.asJava(columns)) {
      if (one instanceof Alias alias && key instanceof Attribute named
          && alias.exprId().equals(named.exprId())) {
        return alias.child();
      }
    }
    return key;
  }

  private interface Condition {
    Expression on(AttributeReference column);
  }

  private static LogicalPlan withRuntimeFilter(LogicalPlan side, Expression key, Condition condition) {
    if (side instanceof Project project) {
      Expression inside = inside(key, project.projectList());
      LogicalPlan child = withRuntimeFilter(project.child(), inside, condition);
      return child == project.child() ? side : project.copy(project.projectList(), child);
    }
    if (side instanceof Filter filter) {
      LogicalPlan child = withRuntimeFilter(filter.child(), key, condition);
      return child == filter.child() ? side : filter.copy(filter.condition(), child);
    }
    DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) side;
    for (AttributeReference column : CollectionConverters.asJava(relation.output())) {
      if (key instanceof Attribute named && column.exprId().equals(named.exprId())
          && ((LanceScan) relation.scan()).prunable()
              .anyMatch(one -> one.fieldNames()[0].equals(column.name()))) {
        return new Filter(condition.on(column), relation);
      }
    }
    return side;
  }

  /** The keys, up to a maximum: a scan ignores a filter of more keys. */
  private Expression limitedKeys(LanceScan scan, AttributeReference column, LogicalPlan other,
      Expression key) {
    // Numbers that overflow the type of the column match no row.
    Expression own = key.dataType().equals(column.dataType()) ? key
        : new Cast(key, column.dataType(), Option.empty(), EvalMode$.MODULE$.TRY());
    Alias named = new Alias(own, column.name(), NamedExpression$.MODULE$.newExprId(),
        CollectionConverters.asScala(List.<String>of()).toSeq(), Option.empty(),
        CollectionConverters.asScala(List.<String>of()).toSeq());
    Expression most = Literal$.MODULE$.apply(scan.maxKeys(column.name()) + 1);
    LogicalPlan each = PlanParts.make(Aggregate.class, seq(own), seq(named),
        new Filter(new IsNotNull(own), other));
    return runtimeFilter(column, new GlobalLimit(most, new LocalLimit(most, each)),
        CollectionConverters.asScala(List.<Expression>of(named.toAttribute())).toSeq(), 0, false);
  }

  static Expression runtimeFilter(AttributeReference column, LogicalPlan other,
      Seq<Expression> keys, int place, boolean onlyInBroadcast) {
    return PlanParts.make(DynamicPruningSubquery.class, column, other, keys, seq(place),
        onlyInBroadcast, NamedExpression$.MODULE$.newExprId());
  }

  static <T> Seq<T> seq(T one) {
    return CollectionConverters.asScala(List.of(one)).toSeq();
  }
}
