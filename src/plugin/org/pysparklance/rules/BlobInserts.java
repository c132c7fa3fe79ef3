package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases;
import org.apache.spark.sql.catalyst.analysis.UnresolvedInlineTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.NullType$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.compat.PlanArguments;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets INSERT, and MERGE that adds columns, give blob columns bytes. Spark compares the types of
 * a query with those of the table as soon as it has both, and a table shows blobs as descriptors.
 * So the target of an insert is resolved first, with the type that is written in each blob column
 * that gets no descriptors. Where a statement may add columns Spark resolves the table again, and
 * bytes pass for descriptors until {@link BlobWrites} or {@link BlobAssignments} sees them.
 */
public final class BlobInserts extends Rule<LogicalPlan> {
  private final SparkSession session;

  public BlobInserts(SparkSession session) { this.session = session; }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof Union) {  // INSERT into several tables
      return (LogicalPlan) plan.mapChildren(child ->
          child instanceof InsertIntoStatement ? apply((LogicalPlan) child) : child);
    }
    if (plan instanceof InsertIntoStatement insert && insert.partitionSpec().isEmpty()) {
      List<String> names = CollectionConverters.asJava(insert.userSpecifiedCols());
      return rewriteInsert(insert, insert.table(), insert.query(), insert.byName(), names);
    }
    if (plan instanceof V2WriteCommand write && !plan.resolved()) {
      return rewriteInsert(
          plan, (LogicalPlan) write.table(), write.query(), write.isByName(), List.of());
    }
    if (plan instanceof MergeIntoTable merge && merge.withSchemaEvolution()) {
      DataSourceV2Relation table = findTarget(merge.targetTable());
      return table == null ? merge : replaceChild(merge, merge.sourceTable(),
          castToDescriptors(merge.sourceTable(), table, true));
    }
    return plan;
  }

  private LogicalPlan rewriteInsert(LogicalPlan write, LogicalPlan target, LogicalPlan query,
      boolean byName, List<String> names) {
    DataSourceV2Relation table = findTarget(target);
    return table == null ? write
        : PlanArguments.isTrue(write, "withSchemaEvolution") && names.isEmpty()
            ? replaceChild(write, query, castToDescriptors(query, table, byName))
            : replaceChild(write, target, withWriteTypes(table, query, byName, names));
  }

  private static LogicalPlan replaceChild(LogicalPlan plan, LogicalPlan child,
      LogicalPlan replacement) {
    Object[] fields = PlanArguments.replace(plan, part -> part == child ? replacement : part);
    return fields == null ? plan : (LogicalPlan) plan.makeCopy(fields);
  }

  /** A query whose bytes for blob columns have the types of descriptors, if there are any. */
  private LogicalPlan castToDescriptors(
      LogicalPlan query, DataSourceV2Relation table, boolean byName) {
    LogicalPlan analyzedQuery = analyze(query);
    if (!analyzedQuery.resolved()) {
      return query;
    }
    LogicalPlan child = analyzedQuery instanceof SubqueryAlias alias ? alias.child()
        : analyzedQuery;
    List<NamedExpression> values = new ArrayList<>(CollectionConverters.asJava(child.output()));
    List<String> names = values.stream().map(NamedExpression::name).toList();
    Map<String, DataType> writeTypes = ((LanceTable) table.table()).blobs();
    boolean isChanged = false;
    for (int i = 0; i < table.output().size(); i++) {
      AttributeReference column = table.output().apply(i);
      int ordinal = byName ? ordinalOf(names, column.name()) : i;
      if (writeTypes.get(column.name()) instanceof BinaryType && ordinal >= 0
          && ordinal < values.size()
          && values.get(ordinal) instanceof Attribute value
          && value.dataType() instanceof BinaryType
          && !value.dataType().sameType(column.dataType())) {
        values.set(ordinal, Aliases.of(new BlobValue(value, column.dataType()), value.name(),
            NamedExpression.newExprId(), value.qualifier()));
        isChanged = true;
      }
    }
    if (!isChanged) {
      return query;
    }
    LogicalPlan projected = new Project(Seqs.from(values), child);
    return child == analyzedQuery ? projected : (LogicalPlan) analyzedQuery.withNewChildren(
        Seqs.of(projected));
  }

  /** The Lance table with columns of blobs that a write names; null for any other table. */
  private DataSourceV2Relation findTarget(LogicalPlan expression) {
    if (!DeferRowLevelCommands.mayBeLance(session, expression)) {
      return null;
    }
    // Spark remembers what it resolves as long as it analyses one plan.
    LogicalPlan resolved = EliminateSubqueryAliases.apply(
        session.sessionState().analyzer().ResolveRelations().apply(expression));
    return resolved instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable table && !table.blobs().isEmpty()
        ? relation : null;
  }

  private DataSourceV2Relation withWriteTypes(
      DataSourceV2Relation table, LogicalPlan query, boolean byName, List<String> names) {
    Map<String, DataType> writeTypes = ((LanceTable) table.table()).blobs();
    List<Value> values = values(analyze(query));
    List<AttributeReference> output =
        new ArrayList<>(CollectionConverters.asJava(table.output()));
    Map<String, String> blobs = new HashMap<>(table.options().asCaseSensitiveMap());
    for (int i = 0; i < output.size(); i++) {
      AttributeReference column = output.get(i);
      DataType type = writeTypes.get(column.name());
      int ordinal = byName ? ordinalOf(values.stream().map(Value::name).toList(), column.name())
          : names.isEmpty() ? i : ordinalOf(names, column.name());
      if (type != null && ordinal >= 0 && ordinal < values.size()
          && isBinaryForBlob(values.get(ordinal).type(), column.dataType(), type)) {
        output.set(i, (AttributeReference) column.withDataType(type));
        blobs.putIfAbsent(column.name() + ".blob", "true");
      }
    }
    // An overwrite derives its columns from the rows; the options mark these bytes as blobs.
    return output.equals(CollectionConverters.asJava(table.output())) ? table
        : (DataSourceV2Relation) BlobWrites.copyWith(table, part -> part == table.output()
            ? Seqs.from(output)
            : part == table.options() ? new CaseInsensitiveStringMap(blobs) : part);
  }

  private LogicalPlan analyze(LogicalPlan query) {
    return query.resolved() ? query : session.sessionState().analyzer().execute(query);
  }

  private static int ordinalOf(List<String> names, String name) {
    for (int i = 0; i < names.size(); i++) {
      if ((Boolean) SQLConf.get().resolver().apply(names.get(i), name)) {
        return i;
      }
    }
    return -1;
  }

  /** A column of a query; its type is null until it is resolved, as that of DEFAULT. */
  private record Value(String name, DataType type) {
    static Value of(Expression column) {
      return new Value(column instanceof NamedExpression expression ? expression.name() : "",
          column.resolved() ? column.dataType() : NullType$.MODULE$);
    }
  }

  private static List<Value> values(LogicalPlan query) {
    if (query instanceof Project project) {
      return CollectionConverters.asJava(project.projectList()).stream()
          .map(column -> Value.of((Expression) column)).toList();
    }
    if (query instanceof UnresolvedInlineTable table) {
      return CollectionConverters.asJava(table.names()).stream()
          .map(name -> inlineTableColumn(table, name)).toList();
    }
    return query.resolved() ? CollectionConverters.asJava(query.output()).stream()
        .map(column -> Value.of((Expression) column)).toList() : List.of();
  }

  /** A column of VALUES: the first type in it that is not that of NULL or DEFAULT. */
  private static Value inlineTableColumn(UnresolvedInlineTable table, String name) {
    int ordinal = table.names().indexOf(name);
    return CollectionConverters.asJava(table.rows()).stream()
        .filter(row -> row.length() > ordinal).map(row -> Value.of(row.apply(ordinal)))
        .filter(column -> !(column.type() instanceof NullType)).findFirst()
        .orElse(new Value(name, NullType$.MODULE$));
  }

  /** Whether a value has bytes, or anything else, where a column shows descriptors of blobs. */
  static boolean isBinaryForBlob(DataType valueType, DataType projected, DataType writeTypes) {
    if (projected.sameType(writeTypes) || valueType instanceof NullType) {
      return false;
    }
    if (projected instanceof StructType fields && writeTypes instanceof StructType all
        && valueType instanceof StructType values) {
      List<String> names = List.of(values.fieldNames());
      for (StructField column : all.fields()) {
        int ordinal = ordinalOf(names, column.name());
        if (ordinal >= 0 && isBinaryForBlob(values.fields()[ordinal].dataType(),
            fields.apply(column.name()).dataType(), column.dataType())) {
          return true;
        }
      }
      return false;
    }
    if (projected instanceof ArrayType fields && writeTypes instanceof ArrayType all
        && valueType instanceof ArrayType values) {
      return isBinaryForBlob(values.elementType(), fields.elementType(), all.elementType());
    }
    return !BlobSources.isDescriptor(valueType);
  }
}
