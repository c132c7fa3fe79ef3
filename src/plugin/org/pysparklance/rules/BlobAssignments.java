package org.pysparklance.rules;

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
import org.pysparklance.compat.PlanArguments;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets UPDATE and MERGE assign bytes to blob columns, which queries read as descriptors: binary
 * values, and blobs of other tables, which are then read as binary. Conditions still see
 * descriptors. This restores the commands that {@link DeferRowLevelCommands} defers, and first handles
 * those that name {@link MetadataColumns}.
 */
public final class BlobAssignments extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof WithCTE) {
      return (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
    }
    if (plan instanceof UpdateTable update) {
      MetadataColumns.refuseValues(update, update.table());
    }
    if (plan instanceof MergeIntoTable merge && isDeferred(merge.mergeCondition(), false)) {
      MetadataColumns.refuseValues(merge, merge.targetTable());
      if (MetadataColumns.areReferenced(merge)) {
        return isReady(merge) ? rewrite(MetadataColumns.withDefaults(merge)) : plan;
      }
    }
    return rewrite(plan);
  }

  private static LogicalPlan rewrite(LogicalPlan plan) {
    if (plan instanceof UpdateTable update && update.table().resolved()
        && !hasBlobs(update.table())
        || plan instanceof MergeIntoTable merge && merge.targetTable().resolved()
        && !hasBlobs(merge.targetTable())) {
      return DeferRowLevelCommands.restore(plan);
    }
    if (plan instanceof UpdateTable update && update.childrenResolved()
        && update.condition().exists(one -> isDeferred(one, true))
        && isReady(CollectionConverters.asJava(update.expressions()))) {
      return new Command(update.table(), null).rewrite(update);
    }
    if (plan instanceof MergeIntoTable merge && isReady(merge)) {
      return new Command(merge.targetTable(), merge.sourceTable()).rewrite(merge);
    }
    return plan;
  }

  /** Whether a target, below aliases and views, is a Lance table with blob columns. */
  static boolean hasBlobs(LogicalPlan target) {
    LogicalPlan relationOrView = EliminateSubqueryAliases.apply(target);
    return relationOrView instanceof View view ? hasBlobs(view.child())
        : relationOrView instanceof DataSourceV2Relation relation
            && relation.table() instanceof LanceTable table && !table.blobs().isEmpty();
  }

  private static boolean isReady(MergeIntoTable merge) {
    return merge.childrenResolved() && isDeferred(merge.mergeCondition(), true)
        && isReady(CollectionConverters.asJava(merge.expressions()));
  }

  /** Whether a condition is deferred, and resolved if it must be. */
  private static boolean isDeferred(Expression condition, boolean resolved) {
    return condition instanceof DeferredCondition deferred
        && (!resolved || deferred.child().resolved());
  }

  private static boolean isReady(List<Expression> expressions) {
    return expressions.stream().allMatch(BlobAssignments::isReady);
  }

  /** Whether all is resolved except conditionals with both descriptors and bytes. */
  private static boolean isReady(Expression expression) {
    boolean mayBeUnresolved = expression instanceof DeferredCondition || isConditional(expression)
        || expression instanceof Assignment
        || !expression.getClass().getName().contains("Unresolved")
        && expression.getClass().getName().endsWith("Action");
    return expression.resolved()
        || mayBeUnresolved && isReady(CollectionConverters.asJava(expression.children()));
  }

  static boolean isConditional(Expression expression) {
    return expression instanceof If || expression instanceof CaseWhen
        || expression instanceof Coalesce;
  }

  /** Whether a child of a conditional is a value rather than a condition. */
  static boolean isResultChild(Expression conditional, int child) {
    return conditional instanceof Coalesce || (conditional instanceof If ? child > 0
        : child % 2 == 1 || child == conditional.children().size() - 1);
  }

  /** A command before its types are checked. */
  private static final class Command {
    private final Map<Long, Column> blobs = new HashMap<>();
    private final LogicalPlan target;
    private final LogicalPlan source;
    private final Map<Long, Attribute> binaryColumns = new HashMap<>();

    /** A blob column of the target: its type in queries, and its type in writes. */
    private record Column(Attribute queryColumn, DataType writeType) {}

    Command(LogicalPlan target, LogicalPlan source) {
      this.target = target;
      this.source = source;
      if (EliminateSubqueryAliases.apply(target) instanceof DataSourceV2Relation relation
          && relation.table() instanceof LanceTable table) {
        Map<String, DataType> writeTypes = table.blobs();
        for (Attribute one : CollectionConverters.asJava(relation.output())) {
          DataType type = writeTypes.get(one.name());
          if (type != null && !type.sameType(one.dataType())) {
            blobs.put(one.exprId().id(), new Column(one, type));
          }
        }
      }
    }

    LogicalPlan rewrite(LogicalPlan command) {
      LogicalPlan assigned = (LogicalPlan) command.mapExpressions(this::assignValues);
      if (!binaryColumns.isEmpty()) {
        CollectionConverters.asJava(assigned.expressions())
            .forEach(expression -> BlobSources.check(expression, binaryColumns.keySet(), false));
        Map<Long, DataType> types = new HashMap<>();
        binaryColumns.forEach((id, blob) -> types.put(id, blob.dataType()));
        assigned = (LogicalPlan) assigned.mapExpressions(expression ->
            BlobSources.withTypes(expression, types));
      }
      LogicalPlan binary = source == null || binaryColumns.isEmpty() ? source
          : new BlobSources(source, binaryColumns).readAsBinary();
      Object[] arguments = PlanArguments.replace((scala.Product) assigned, expression ->
          expression == source && source != null ? binary
          : DeferRowLevelCommands.restorePart(expression));
      return (LogicalPlan) assigned.makeCopy(arguments);
    }

    /** Replaces the values that an expression of the command assigns to blob columns. */
    private Expression assignValues(Expression expression) {
      if (!(expression instanceof Assignment assignment)) {
        return (Expression) expression.mapChildren(child -> assignValues((Expression) child));
      }
      Column column = assignment.key() instanceof Attribute key ? blobs.get(key.exprId().id())
          : null;
      return column == null ? expression
          : assignment.copy(assignment.key(), value(assignment.value(), column));
    }

    private Expression value(Expression value, Column column) {
      if (isConditional(value)) {
        return BlobWrites.mapResultChildren(value, child -> value(child, column));
      }
      DataType type = value.dataType();
      // Spark may have cast NULL to the type of descriptors.
      if (type instanceof NullType || BlobWrites.isNull(value)) {
        return Literal.create(null, column.queryColumn().dataType());
      }
      if (type.sameType(column.writeType())) {
        return new BlobValue(value, column.queryColumn().dataType());
      }
      return BlobSources.isDescriptor(type) ? ofDescriptor(value, column) : value;
    }

    /** The bytes of a descriptor. */
    private Expression ofDescriptor(Expression value, Column column) {
      DataType queryType = column.queryColumn().dataType();
      if (value instanceof Attribute current && blobs.containsKey(current.exprId().id())
          && target.outputSet().contains(current)) {
        return value;
      }
      if (value instanceof Attribute blob && source != null && source.outputSet().contains(blob)) {
        Attribute binary = binaryColumns.computeIfAbsent(
            blob.exprId().id(), id -> (Attribute) blob.withDataType(column.writeType()));
        return new BlobValue(binary, queryType);
      }
      if (value instanceof ScalarSubquery query && query.outerAttrs().isEmpty()) {
        Attribute blob = query.plan().output().head();
        Map<Long, Attribute> binary =
            Map.of(blob.exprId().id(), (Attribute) blob.withDataType(column.writeType()));
        return new BlobValue(
            query.withNewPlan(new BlobSources(query.plan(), binary).readAsBinary()), queryType);
      }
      throw BlobSources.unsupported(column.queryColumn().name());
    }
  }
}
