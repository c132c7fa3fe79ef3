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
import org.pysparklance.read.LanceScan;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.math.BigInt;

/**
 * Gives scans the keys that the other side of a join has, so that they look for these alone. Spark
 * does so only where a condition on the other side makes it likely that these are few; here an
 * index tells what a key costs, so few keys are enough.
 */
final class JoinedKeys extends Rule<LogicalPlan> {
  /** Of more bytes on the other side, few keys are not to be expected. */
  private static final long MAX_BYTES = 64 << 20;

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
      return narrowed(join, join.left(), join.right(), true);
    }
    return PartitionPruning.canPruneRight(join.joinType()) && canPrune(join.right(), join.left())
        ? narrowed(join, join.right(), join.left(), false) : join;
  }

  /** The join with fewer rows of {@code side}, which is its left one or its right one. */
  private Join narrowed(Join join, LogicalPlan side, LogicalPlan other, boolean isLeft) {
    Seq<Expression> own = keys(join, isLeft);
    Seq<Expression> others = keys(join, !isLeft);
    LogicalPlan told = other;
    boolean isBroadcast = isBroadcast(join, !isLeft);
    if (!isBroadcast) {
      boolean isSmall = isBroadcast(join, isLeft);
      boolean isFew = scan(side).isOfRowChange() && !isSmall ? mayBeFew(other)
          : PartitionPruning.canBroadcastBySize(other, conf());
      if (!isFew || isSmall && scan(side).table().rows() <= LanceScan.MAX_KEYS) {
        return join;
      }
      // As the join divides them anyway. Both get it from one exchange, so rows are made once.
      told = new RepartitionByExpression(others, other, Option.empty(), Option.empty());
    }
    LogicalPlan fewer = asked(side, own, told, others, isBroadcast);
    return fewer == side ? join : join.copy(isLeft ? fewer : told, isLeft ? told : fewer,
        join.joinType(), join.condition(), join.hint());
  }

  /** Whether every task of the join gets all rows of one side. */
  private boolean isBroadcast(Join join, boolean left) { return isBroadcast(join, left, conf()); }

  static boolean isBroadcast(Join join, boolean left, SQLConf conf) {
    boolean isPossible = left ? PartitionPruning.canBuildBroadcastLeft(join.joinType())
        : PartitionPruning.canBuildBroadcastRight(join.joinType());
    boolean isHinted = left ? PartitionPruning.hintToBroadcastLeft(join.hint())
        : PartitionPruning.hintToBroadcastRight(join.hint());
    return isPossible && (isHinted
        || PartitionPruning.canBroadcastBySize(left ? join.left() : join.right(), conf));
  }

  /** Not where rows are known to be many. Of rows that Python or a function makes, nothing is. */
  private boolean mayBeFew(LogicalPlan plan) {
    BigInt unknown = BigInt.apply(conf().defaultSizeInBytes());
    return plan.stats().sizeInBytes().$less$eq(BigInt.apply(MAX_BYTES))
        || plan.collectLeaves().exists(leaf -> leaf.stats().sizeInBytes().$greater$eq(unknown));
  }

  /** Whether one side is a scan of ours that is told no keys yet, and the other side has them. */
  private static boolean canPrune(LogicalPlan side, LogicalPlan other) {
    return scan(side) != null && !other.isStreaming() && other.deterministic();
  }

  static Seq<Expression> keys(Join join, boolean ofLeft) {
    var found = ExtractEquiJoinKeys.unapply(join);
    return found.isEmpty() ? CollectionConverters.asScala(List.<Expression>of()).toSeq()
        : ofLeft ? found.get()._2() : found.get()._3();
  }

  /** The scan below columns that are chosen and conditions, if no join gives it keys yet. */
  private static LanceScan scan(LogicalPlan side) {
    if (side instanceof Project || side instanceof Filter filter && !isPruned(filter.condition())) {
      return scan(((UnaryNode) side).child());
    }
    return side instanceof DataSourceV2ScanRelation relation
        && relation.scan() instanceof LanceScan scan ? scan : null;
  }

  static boolean isPruned(Expression condition) {
    return condition.exists(part -> part instanceof DynamicPruning);
  }

  /** One side, whose scan asks for the keys of the other side that it can look for. */
  private LogicalPlan asked(LogicalPlan side, Seq<Expression> own, LogicalPlan other,
      Seq<Expression> others, boolean onlyInBroadcast) {
    LogicalPlan narrowed = side;
    for (int i = 0; i < own.size(); i++) {
      int place = i;
      Expression key = own.apply(i);
      narrowed = onlyInBroadcast
          ? narrowed(narrowed, key, column -> asked(column, other, others, place, true))
          : narrowed(narrowed, narrow(key), column -> few(column, other, others.apply(place)));
    }
    return narrowed;
  }

  /** A column that is cast to integers of more bytes, without the cast. */
  private static Expression narrow(Expression key) {
    return key instanceof Cast cast && cast.dataType() instanceof IntegralType wide
        && cast.child().dataType() instanceof IntegralType own
        && own.defaultSize() < wide.defaultSize() ? cast.child() : key;
  }

  /** What a column is below those that are chosen; everything else is there what it is above. */
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

  private static LogicalPlan narrowed(LogicalPlan side, Expression key, Condition condition) {
    if (side instanceof Project project) {
      Expression inside = inside(key, project.projectList());
      LogicalPlan child = narrowed(project.child(), inside, condition);
      return child == project.child() ? side : project.copy(project.projectList(), child);
    }
    if (side instanceof Filter filter) {
      LogicalPlan child = narrowed(filter.child(), key, condition);
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

  /** The keys, if they are few: a scan passes over more of them, so no more are collected. */
  private Expression few(AttributeReference column, LogicalPlan other, Expression key) {
    // Numbers that are too large for the column are none of its keys.
    Expression own = key.dataType().equals(column.dataType()) ? key
        : new Cast(key, column.dataType(), Option.empty(), EvalMode$.MODULE$.TRY());
    Alias named = new Alias(own, column.name(), NamedExpression$.MODULE$.newExprId(),
        CollectionConverters.asScala(List.<String>of()).toSeq(), Option.empty(),
        CollectionConverters.asScala(List.<String>of()).toSeq());
    Expression most = Literal$.MODULE$.apply(LanceScan.MAX_KEYS + 1);
    LogicalPlan each = PlanParts.make(Aggregate.class, seq(own), seq(named),
        new Filter(new IsNotNull(own), other));
    return asked(column, new GlobalLimit(most, new LocalLimit(most, each)),
        CollectionConverters.asScala(List.<Expression>of(named.toAttribute())).toSeq(), 0, false);
  }

  static Expression asked(AttributeReference column, LogicalPlan other,
      Seq<Expression> keys, int place, boolean onlyInBroadcast) {
    return PlanParts.make(DynamicPruningSubquery.class, column, other, keys, seq(place),
        onlyInBroadcast, NamedExpression$.MODULE$.newExprId());
  }

  private static <T> Seq<T> seq(T one) {
    return CollectionConverters.asScala(List.of(one)).toSeq();
  }
}
