package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.NullType;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.compat.PlanParts;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets UPDATE and MERGE assign bytes to blob columns, which queries read as descriptors: binary
 * values, and blobs of other tables, which are then read as binary. Conditions still see
 * descriptors. This releases the commands that {@link DeferredCommands} defers, and first handles
 * those that name {@link HiddenColumns}.
 */
public final class BlobAssignments extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof WithCTE) {
      return (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
    }
    if (plan instanceof UpdateTable update) {
      HiddenColumns.refuseValues(update, update.table());
    }
    if (plan instanceof MergeIntoTable merge && isHeld(merge.mergeCondition(), false)) {
      HiddenColumns.refuseValues(merge, merge.targetTable());
      if (HiddenColumns.areNamed(merge)) {
        return isReady(merge) ? released(HiddenColumns.withDefaults(merge)) : plan;
      }
    }
    return released(plan);
  }

  private static LogicalPlan released(LogicalPlan plan) {
    if (plan instanceof UpdateTable update && update.table().resolved()
        && !hasBlobs(update.table())
        || plan instanceof MergeIntoTable merge && merge.targetTable().resolved()
        && !hasBlobs(merge.targetTable())) {
      return DeferredCommands.released(plan);
    }
    if (plan instanceof UpdateTable update && update.childrenResolved()
        && update.condition().exists(one -> isHeld(one, true))
        && isReady(CollectionConverters.asJava(update.expressions()))) {
      return new Command(update.table(), null).released(update);
    }
    if (plan instanceof MergeIntoTable merge && isReady(merge)) {
      return new Command(merge.targetTable(), merge.sourceTable()).released(merge);
    }
    return plan;
  }

  /** Whether a target, below aliases and views, is a Lance table with blob columns. */
  static boolean hasBlobs(LogicalPlan target) {
    LogicalPlan table = EliminateSubqueryAliases.apply(target);
    return table instanceof View view ? hasBlobs(view.child())
        : table instanceof DataSourceV2Relation relation
            && relation.table() instanceof LanceTable own && !own.blobs().isEmpty();
  }

  private static boolean isReady(MergeIntoTable merge) {
    return merge.childrenResolved() && isHeld(merge.mergeCondition(), true)
        && isReady(CollectionConverters.asJava(merge.expressions()));
  }

  /** Whether a condition is deferred, and resolved if it must be. */
  private static boolean isHeld(Expression condition, boolean resolved) {
    return condition instanceof DeferredCondition held && (!resolved || held.child().resolved());
  }

  private static boolean isReady(List<Expression> parts) {
    return parts.stream().allMatch(BlobAssignments::isReady);
  }

  /** Whether all is resolved except conditionals with both descriptors and bytes. */
  private static boolean isReady(Expression part) {
    boolean mayWait = part instanceof DeferredCondition || choosesValues(part)
        || part instanceof Assignment || !part.getClass().getName().contains("Unresolved")
        && part.getClass().getName().endsWith("Action");
    return part.resolved() || mayWait && isReady(CollectionConverters.asJava(part.children()));
  }

  static boolean choosesValues(Expression part) {
    return part instanceof If || part instanceof CaseWhen || part instanceof Coalesce;
  }

  /** Whether a child of a conditional is a value rather than a condition. */
  static boolean isChosen(Expression chooser, int child) {
    return chooser instanceof Coalesce || (chooser instanceof If ? child > 0
        : child % 2 == 1 || child == chooser.children().size() - 1);
  }

  /** A command before its types are checked. */
  private static final class Command {
    private final Map<Long, Column> blobs = new HashMap<>();
    private final LogicalPlan target;
    private final LogicalPlan source;
    private final Map<Long, Attribute> fetched = new HashMap<>();

    /** A blob column of the target: its type in queries, and its type in writes. */
    private record Column(Attribute shown, DataType written) {}

    Command(LogicalPlan target, LogicalPlan source) {
      this.target = target;
      this.source = source;
      if (EliminateSubqueryAliases.apply(target) instanceof DataSourceV2Relation relation
          && relation.table() instanceof LanceTable table) {
        Map<String, DataType> written = table.blobs();
        for (Attribute one : CollectionConverters.asJava(relation.output())) {
          DataType type = written.get(one.name());
          if (type != null && !type.sameType(one.dataType())) {
            blobs.put(one.exprId().id(), new Column(one, type));
          }
        }
      }
    }

    LogicalPlan released(LogicalPlan command) {
      LogicalPlan given = (LogicalPlan) command.mapExpressions(this::given);
      if (!fetched.isEmpty()) {
        CollectionConverters.asJava(given.expressions())
            .forEach(part -> BlobSources.check(part, fetched.keySet(), false));
        Map<Long, DataType> types = new HashMap<>();
        fetched.forEach((id, blob) -> types.put(id, blob.dataType()));
        given = (LogicalPlan) given.mapExpressions(part -> BlobSources.retyped(part, types));
      }
      LogicalPlan read = source == null || fetched.isEmpty() ? source
          : new BlobSources(source, fetched).asBytes();
      Object[] parts = PlanParts.changed((scala.Product) given, part ->
          part == source && source != null ? read : DeferredCommands.releasedPart(part));
      return (LogicalPlan) given.makeCopy(parts);
    }

    /** Replaces the values that an expression of the command assigns to blob columns. */
    private Expression given(Expression part) {
      if (!(part instanceof Assignment set)) {
        return (Expression) part.mapChildren(child -> given((Expression) child));
      }
      Column column = set.key() instanceof Attribute key ? blobs.get(key.exprId().id()) : null;
      return column == null ? part : set.copy(set.key(), value(set.value(), column));
    }

    private Expression value(Expression given, Column column) {
      if (choosesValues(given)) {
        List<Expression> parts = new ArrayList<>(CollectionConverters.asJava(given.children()));
        for (int i = 0; i < parts.size(); i++) {
          if (isChosen(given, i)) {
            parts.set(i, value(parts.get(i), column));
          }
        }
        return (Expression) given.withNewChildren(CollectionConverters.asScala(parts).toSeq());
      }
      DataType type = given.dataType();
      // Spark may have cast NULL to the type of descriptors.
      if (type instanceof NullType || BlobWrites.isNull(given)) {
        return Literal.create(null, column.shown().dataType());
      }
      if (type.sameType(column.written())) {
        return new BlobValue(given, column.shown().dataType());
      }
      return BlobSources.isDescriptor(type) ? ofDescriptor(given, column) : given;
    }

    /** The bytes of a descriptor. */
    private Expression ofDescriptor(Expression given, Column column) {
      DataType shown = column.shown().dataType();
      if (given instanceof Attribute own && blobs.containsKey(own.exprId().id())
          && target.outputSet().contains(own)) {
        return given;
      }
      if (given instanceof Attribute blob && source != null && source.outputSet().contains(blob)) {
        Attribute read = fetched.computeIfAbsent(
            blob.exprId().id(), id -> (Attribute) blob.withDataType(column.written()));
        return new BlobValue(read, shown);
      }
      if (given instanceof ScalarSubquery query && query.outerAttrs().isEmpty()) {
        Attribute blob = query.plan().output().head();
        Map<Long, Attribute> read =
            Map.of(blob.exprId().id(), (Attribute) blob.withDataType(column.written()));
        return new BlobValue(
            query.withNewPlan(new BlobSources(query.plan(), read).asBytes()), shown);
      }
      throw BlobSources.refused(column.shown().name());
    }
  }
}
