package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.compat.PlanArguments;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Rewrites a query to return the bytes of some blob columns instead of descriptors: their scans
 * read binary, and all nodes above pass it on.
 */
final class BlobSources {
  private final LogicalPlan plan;
  private final Map<Long, Attribute> outputColumns;

  /** {@code outputColumns}: the rewritten columns of the output, by id. */
  BlobSources(LogicalPlan plan, Map<Long, Attribute> outputColumns) {
    this.plan = plan;
    this.outputColumns = outputColumns;
  }

  LogicalPlan readAsBinary() {
    Set<Long> ids = new HashSet<>(outputColumns.keySet());
    return rewrite(plan, ids);
  }

  /** Whether a type is that of blob descriptors. */
  static boolean isDescriptor(DataType type) {
    return type instanceof StructType fields
        && Set.of(fields.fieldNames()).containsAll(Set.of("position", "size"));
  }

  static UnsupportedOperationException unsupported(String column) {
    return new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] the value of the blob "
        + "column " + column + " is made of descriptors, which say where bytes are, in a way in "
        + "which they cannot be followed to the table that they are read from\n  hint: read the "
        + "bytes themselves, with the option blobColumns");
  }

  /** The plan with bytes in those columns of its output that {@code ids} name. */
  private static LogicalPlan rewrite(LogicalPlan plan, Set<Long> ids) {
    if (ids.isEmpty()) {
      return plan;
    }
    if (plan instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable table) {
      return readTableAsBinary(relation, table, ids);
    }
    List<LogicalPlan> children = new ArrayList<>();
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) {
      children.add(rewrite(child, childColumns(plan, child, ids)));
    }
    if (children.isEmpty() || plan instanceof Aggregate) {
      throw unsupported(nameOf(plan, ids));
    }
    LogicalPlan rewritten =
        (LogicalPlan) plan.withNewChildren(Seqs.from(children));
    Map<Long, DataType> types = new HashMap<>();
    children.forEach(child -> CollectionConverters.asJava(child.output())
        .forEach(one -> types.put(one.exprId().id(), one.dataType())));
    return (LogicalPlan) rewritten.mapExpressions(part -> withTypes(
        part instanceof Alias alias && ids.contains(alias.exprId().id())
            && alias.child() instanceof BlobValue blob
            ? (Alias) alias.withNewChildren(blob.children()) : part, types));
  }

  private static LogicalPlan readTableAsBinary(DataSourceV2Relation relation, LanceTable table,
      Set<Long> ids) {
    List<AttributeReference> output = new ArrayList<>();
    List<String> names = new ArrayList<>();
    Map<String, DataType> writeTypes = table.blobs();
    for (AttributeReference one : CollectionConverters.asJava(relation.output())) {
      boolean isBinary = ids.contains(one.exprId().id());
      if (isBinary && !writeTypes.containsKey(one.name())) {
        throw unsupported(one.name());
      }
      output.add(isBinary ? (AttributeReference) one.withDataType(writeTypes.get(one.name()))
          : one);
      if (isBinary) {
        names.add(one.name());
      }
    }
    Object[] arguments = PlanArguments.replace(relation, part -> part == relation.table()
        ? table.withBinaryBlobs(names) : part == relation.output()
        ? Seqs.from(output) : part);
    return relation.makeCopy(arguments);
  }

  /** The columns of a child from which the parent's columns in {@code ids} derive. */
  private static Set<Long> childColumns(LogicalPlan plan, LogicalPlan child, Set<Long> ids) {
    Set<Long> result = new HashSet<>();
    if (plan instanceof Union) {
      for (int i = 0; i < plan.output().size(); i++) {
        if (ids.contains(plan.output().apply(i).exprId().id())) {
          result.add(child.output().apply(i).exprId().id());
        }
      }
      return result;
    }
    Set<Long> childIds = new HashSet<>();
    CollectionConverters.asJava(child.output()).forEach(one -> childIds.add(one.exprId().id()));
    Set<Long> inherited = new HashSet<>(ids);
    if (plan instanceof Project project) {
      for (Object one : CollectionConverters.asJava(project.projectList())) {
        if (one instanceof Alias alias && inherited.remove(alias.exprId().id())) {
          if (alias.child() instanceof BlobValue) {
            continue;
          }
          if (!(alias.child() instanceof Attribute blob)) {
            throw unsupported(alias.name());
          }
          inherited.add(blob.exprId().id());
        }
      }
    }
    for (Long id : inherited) {
      if (childIds.contains(id)) {
        result.add(id);
      }
    }
    CollectionConverters.asJava(plan.expressions()).forEach(part -> check(part, result, true));
    return result;
  }

  /** Refuses expressions on descriptors, which will not exist. */
  static void check(Expression part, Set<Long> ids, boolean isAllowed) {
    if (part instanceof Attribute one && ids.contains(one.exprId().id()) && !isAllowed) {
      throw unsupported(one.name());
    }
    boolean allowsColumn = part instanceof Alias || part instanceof BlobValue
        || part instanceof IsNull || part instanceof IsNotNull;
    CollectionConverters.asJava(part.children()).forEach(child -> check(child, ids, allowsColumn));
  }

  static Expression withTypes(Expression part, Map<Long, DataType> types) {
    if (part instanceof AttributeReference one) {
      DataType type = types.get(one.exprId().id());
      return type == null || type.equals(one.dataType()) ? one
          : (Expression) one.withDataType(type);
    }
    return (Expression) part.mapChildren(child -> withTypes((Expression) child, types));
  }

  private static String nameOf(LogicalPlan plan, Set<Long> ids) {
    return CollectionConverters.asJava(plan.output()).stream()
        .filter(one -> ids.contains(one.exprId().id())).map(Attribute::name).findFirst().orElse("");
  }
}
