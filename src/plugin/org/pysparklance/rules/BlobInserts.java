package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases;
import org.apache.spark.sql.catalyst.analysis.UnresolvedInlineTable;
import org.apache.spark.sql.catalyst.expressions.Alias;
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
import org.pysparklance.compat.PlanParts;
import scala.Option;
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
      return inserted(insert, insert.table(), insert.query(), insert.byName(), names);
    }
    if (plan instanceof V2WriteCommand write && !plan.resolved()) {
      return inserted(
          plan, (LogicalPlan) write.table(), write.query(), write.isByName(), List.of());
    }
    if (plan instanceof MergeIntoTable merge && merge.withSchemaEvolution()) {
      DataSourceV2Relation table = target(merge.targetTable());
      return table == null ? merge : with(merge, merge.sourceTable(),
          asDescriptors(merge.sourceTable(), table, true));
    }
    return plan;
  }

  private LogicalPlan inserted(LogicalPlan write, LogicalPlan target, LogicalPlan query,
      boolean byName, List<String> names) {
    DataSourceV2Relation table = target(target);
    return table == null ? write
        : PlanParts.isSet(write, "withSchemaEvolution") && names.isEmpty()
            ? with(write, query, asDescriptors(query, table, byName))
            : with(write, target, retyped(table, query, byName, names));
  }

  private static LogicalPlan with(LogicalPlan plan, LogicalPlan child, LogicalPlan other) {
    Object[] parts = PlanParts.changed(plan, part -> part == child ? other : part);
    return parts == null ? plan : (LogicalPlan) plan.makeCopy(parts);
  }

  /** A query whose bytes for blob columns have the types of descriptors, if there are any. */
  private LogicalPlan asDescriptors(
      LogicalPlan query, DataSourceV2Relation table, boolean byName) {
    LogicalPlan whole = analyzed(query);
    if (!whole.resolved()) {
      return query;
    }
    LogicalPlan below = whole instanceof SubqueryAlias alias ? alias.child() : whole;
    List<NamedExpression> values = new ArrayList<>(CollectionConverters.asJava(below.output()));
    List<String> names = values.stream().map(NamedExpression::name).toList();
    Map<String, DataType> written = ((LanceTable) table.table()).blobs();
    boolean isChanged = false;
    for (int i = 0; i < table.output().size(); i++) {
      AttributeReference column = table.output().apply(i);
      int place = byName ? place(names, column.name()) : i;
      if (written.get(column.name()) instanceof BinaryType && place >= 0 && place < values.size()
          && values.get(place) instanceof Attribute value
          && value.dataType() instanceof BinaryType && !value.dataType().sameType(column.dataType())) {
        values.set(place, new Alias(new BlobValue(value, column.dataType()), value.name(),
            NamedExpression.newExprId(), value.qualifier(), Option.empty(),
            CollectionConverters.asScala(List.<String>of()).toSeq()));
        isChanged = true;
      }
    }
    if (!isChanged) {
      return query;
    }
    LogicalPlan shown = new Project(CollectionConverters.asScala(values).toSeq(), below);
    return below == whole ? shown : (LogicalPlan) whole.withNewChildren(
        CollectionConverters.asScala(List.of(shown)).toSeq());
  }

  /** The Lance table with columns of blobs that a write names; null for any other table. */
  private DataSourceV2Relation target(LogicalPlan named) {
    if (!DeferredCommands.mayBeLance(session, named)) {
      return null;
    }
    // Spark remembers what it resolves as long as it analyses one plan.
    LogicalPlan found = EliminateSubqueryAliases.apply(
        session.sessionState().analyzer().ResolveRelations().apply(named));
    return found instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable table && !table.blobs().isEmpty()
        ? relation : null;
  }

  private DataSourceV2Relation retyped(
      DataSourceV2Relation table, LogicalPlan query, boolean byName, List<String> names) {
    Map<String, DataType> written = ((LanceTable) table.table()).blobs();
    List<Value> values = values(analyzed(query));
    List<AttributeReference> output =
        new ArrayList<>(CollectionConverters.asJava(table.output()));
    Map<String, String> blobs = new HashMap<>(table.options().asCaseSensitiveMap());
    for (int i = 0; i < output.size(); i++) {
      AttributeReference column = output.get(i);
      DataType type = written.get(column.name());
      int place = byName ? place(values.stream().map(Value::name).toList(), column.name())
          : names.isEmpty() ? i : place(names, column.name());
      if (type != null && place >= 0 && place < values.size()
          && holdsBytes(values.get(place).type(), column.dataType(), type)) {
        output.set(i, (AttributeReference) column.withDataType(type));
        blobs.putIfAbsent(column.name() + ".blob", "true");
      }
    }
    // An overwrite makes columns of what it gets; the options say that these bytes are blobs.
    return output.equals(CollectionConverters.asJava(table.output())) ? table
        : (DataSourceV2Relation) BlobWrites.copied(table, part -> part == table.output()
            ? CollectionConverters.asScala(output).toSeq()
            : part == table.options() ? new CaseInsensitiveStringMap(blobs) : part);
  }

  private LogicalPlan analyzed(LogicalPlan query) {
    return query.resolved() ? query : session.sessionState().analyzer().execute(query);
  }

  private static int place(List<String> names, String name) {
    for (int i = 0; i < names.size(); i++) {
      if ((Boolean) SQLConf.get().resolver().apply(names.get(i), name)) {
        return i;
      }
    }
    return -1;
  }

  /** A column of a query; its type is null where it is not known yet, as that of DEFAULT. */
  private record Value(String name, DataType type) {
    static Value of(Expression one) {
      return new Value(one instanceof NamedExpression named ? named.name() : "",
          one.resolved() ? one.dataType() : NullType$.MODULE$);
    }
  }

  private static List<Value> values(LogicalPlan query) {
    if (query instanceof Project project) {
      return CollectionConverters.asJava(project.projectList()).stream()
          .map(one -> Value.of((Expression) one)).toList();
    }
    if (query instanceof UnresolvedInlineTable table) {
      return CollectionConverters.asJava(table.names()).stream()
          .map(name -> ofRows(table, name)).toList();
    }
    return query.resolved() ? CollectionConverters.asJava(query.output()).stream()
        .map(one -> Value.of((Expression) one)).toList() : List.of();
  }

  /** A column of VALUES: the first type in it that is not that of NULL or DEFAULT. */
  private static Value ofRows(UnresolvedInlineTable table, String name) {
    int place = table.names().indexOf(name);
    return CollectionConverters.asJava(table.rows()).stream()
        .filter(row -> row.length() > place).map(row -> Value.of(row.apply(place)))
        .filter(one -> !(one.type() instanceof NullType)).findFirst()
        .orElse(new Value(name, NullType$.MODULE$));
  }

  /** Whether a value has bytes, or anything else, where a column shows descriptors of blobs. */
  static boolean holdsBytes(DataType given, DataType shown, DataType written) {
    if (shown.sameType(written) || given instanceof NullType) {
      return false;
    }
    if (shown instanceof StructType parts && written instanceof StructType all
        && given instanceof StructType values) {
      List<String> names = List.of(values.fieldNames());
      for (StructField one : all.fields()) {
        int place = place(names, one.name());
        if (place >= 0 && holdsBytes(values.fields()[place].dataType(),
            parts.apply(one.name()).dataType(), one.dataType())) {
          return true;
        }
      }
      return false;
    }
    if (shown instanceof ArrayType parts && written instanceof ArrayType all
        && given instanceof ArrayType values) {
      return holdsBytes(values.elementType(), parts.elementType(), all.elementType());
    }
    return !BlobSources.isDescriptor(given);
  }
}
