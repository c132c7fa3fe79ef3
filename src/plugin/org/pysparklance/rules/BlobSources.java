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
import org.pysparklance.compat.PlanParts;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Rewrites a query to return the bytes of some blob columns instead of descriptors: their scans
 * read binary, and all nodes above pass it on.
 */
final class BlobSources {
  private final LogicalPlan plan;
  private final Map<Long, Attribute> wanted;

  /** {@code wanted}: the rewritten columns of the output, by id. */
  BlobSources(LogicalPlan plan, Map<Long, Attribute> wanted) {
    this.plan = plan;
    this.wanted = wanted;
  }

  LogicalPlan asBytes() {
    Set<Long> ids = new HashSet<>(wanted.keySet());
    return read(plan, ids);
  }

  /** Whether a type is that of blob descriptors. */
  static boolean isDescriptor(DataType type) {
    return type instanceof StructType parts
        && Set.of(parts.fieldNames()).containsAll(Set.of("position", "size"));
  }

  static UnsupportedOperationException refused(String column) {
    return new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] the value of the blob "
        + "column " + column + " is made of descriptors, which say where bytes are, in a way in "
        + "which they cannot be followed to the table that they are read from\n  hint: read the "
        + "bytes themselves, with the option blobColumns");
  }

  /** The plan with bytes in those columns of its output that {@code ids} name. */
  private static LogicalPlan read(LogicalPlan plan, Set<Long> ids) {
    if (ids.isEmpty()) {
      return plan;
    }
    if (plan instanceof DataSourceV2Relation relation && relation.table() instanceof LanceTable table) {
      return ofTable(relation, table, ids);
    }
    List<LogicalPlan> children = new ArrayList<>();
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) {
      children.add(read(child, below(plan, child, ids)));
    }
    if (children.isEmpty() || plan instanceof Aggregate) {
      throw refused(nameOf(plan, ids));
    }
    LogicalPlan over =
        (LogicalPlan) plan.withNewChildren(CollectionConverters.asScala(children).toSeq());
    Map<Long, DataType> types = new HashMap<>();
    children.forEach(child -> CollectionConverters.asJava(child.output())
        .forEach(one -> types.put(one.exprId().id(), one.dataType())));
    return (LogicalPlan) over.mapExpressions(part -> retyped(
        part instanceof Alias alias && ids.contains(alias.exprId().id())
            && alias.child() instanceof BlobValue blob
            ? (Alias) alias.withNewChildren(blob.children()) : part, types));
  }

  private static LogicalPlan ofTable(DataSourceV2Relation relation, LanceTable table, Set<Long> ids) {
    List<AttributeReference> output = new ArrayList<>();
    List<String> names = new ArrayList<>();
    Map<String, DataType> written = table.blobs();
    for (AttributeReference one : CollectionConverters.asJava(relation.output())) {
      boolean isWanted = ids.contains(one.exprId().id());
      if (isWanted && !written.containsKey(one.name())) {
        throw refused(one.name());
      }
      output.add(isWanted ? (AttributeReference) one.withDataType(written.get(one.name())) : one);
      if (isWanted) {
        names.add(one.name());
      }
    }
    Object[] parts = PlanParts.changed(relation, part -> part == relation.table()
        ? table.withBytes(names) : part == relation.output()
        ? CollectionConverters.asScala(output).toSeq() : part);
    return relation.makeCopy(parts);
  }

  /** The columns of a child from which the parent's columns in {@code ids} derive. */
  private static Set<Long> below(LogicalPlan plan, LogicalPlan child, Set<Long> ids) {
    Set<Long> found = new HashSet<>();
    if (plan instanceof Union) {
      for (int i = 0; i < plan.output().size(); i++) {
        if (ids.contains(plan.output().apply(i).exprId().id())) {
          found.add(child.output().apply(i).exprId().id());
        }
      }
      return found;
    }
    Set<Long> own = new HashSet<>();
    CollectionConverters.asJava(child.output()).forEach(one -> own.add(one.exprId().id()));
    Set<Long> passed = new HashSet<>(ids);
    if (plan instanceof Project project) {
      for (Object one : CollectionConverters.asJava(project.projectList())) {
        if (one instanceof Alias alias && passed.remove(alias.exprId().id())) {
          if (alias.child() instanceof BlobValue) {
            continue;
          }
          if (!(alias.child() instanceof Attribute blob)) {
            throw refused(alias.name());
          }
          passed.add(blob.exprId().id());
        }
      }
    }
    for (Long id : passed) {
      if (own.contains(id)) {
        found.add(id);
      }
    }
    CollectionConverters.asJava(plan.expressions()).forEach(part -> check(part, found, true));
    return found;
  }

  /** Refuses expressions on descriptors, which will not exist. */
  static void check(Expression part, Set<Long> ids, boolean isPassed) {
    if (part instanceof Attribute one && ids.contains(one.exprId().id()) && !isPassed) {
      throw refused(one.name());
    }
    boolean passes = part instanceof Alias || part instanceof BlobValue || part instanceof IsNull || part instanceof IsNotNull;
    CollectionConverters.asJava(part.children()).forEach(child -> check(child, ids, passes));
  }

  static Expression retyped(Expression part, Map<Long, DataType> types) {
    if (part instanceof AttributeReference one) {
      DataType type = types.get(one.exprId().id());
      return type == null || type.equals(one.dataType()) ? one : (Expression) one.withDataType(type);
    }
    return (Expression) part.mapChildren(child -> retyped((Expression) child, types));
  }

  private static String nameOf(LogicalPlan plan, Set<Long> ids) {
    return CollectionConverters.asJava(plan.output()).stream()
        .filter(one -> ids.contains(one.exprId().id())).map(Attribute::name).findFirst().orElse("");
  }
}
