package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.util.WriteDeltaProjections;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.compat.PlanArguments;
import org.pysparklance.write.LanceRowLevelOperation;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Values of blob columns in a write. A {@link BlobValue} is replaced by the bytes; a column that no
 * clause of a MERGE sets is left out; and rows that keep their blobs are marked, since Python copies
 * these from the old rows. So these columns have other types in the write than in queries.
 */
public final class BlobWrites extends Rule<LogicalPlan> {
  /** The type of a column that only some rows assign: bytes, or the column that has them. */
  private static final String BYTES = "__lance_bytes";
  private static final String COLUMN = "__lance_column";

  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof WriteDelta write
        && write.operation() instanceof LanceRowLevelOperation operation
        && operation.command() != RowLevelOperation.Command.DELETE
        && write.originalTable() instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable table && write.resolved()
        && write.projections().rowProjection().isDefined() && !table.blobs().isEmpty()) {
      return new Delta(write, operation, table.blobs()).plan();
    }
    if (plan instanceof V2WriteCommand write && !(plan instanceof WriteDelta) && plan.resolved()
        && hasBlobValues(write.query()) && write.table() instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable table && !table.blobs().isEmpty()) {
      return rewriteAppend(write, relation, table.blobs());
    }
    return plan;
  }

  /** Whether a query has values for blobs; other writes do not need to resolve the table yet. */
  private static boolean hasBlobValues(LogicalPlan query) {
    return query.exists(node -> CollectionConverters.asJava(node.expressions()).stream()
        .anyMatch(one -> one.exists(part -> part instanceof BlobValue)));
  }

  /** Inserted rows, as of a MERGE that only inserts. */
  private static LogicalPlan rewriteAppend(
      V2WriteCommand write, DataSourceV2Relation relation, Map<String, DataType> blobs) {
    List<AttributeReference> output =
        new ArrayList<>(CollectionConverters.asJava(relation.output()));
    LogicalPlan query = write.query();
    for (int i = 0; i < output.size(); i++) {
      AttributeReference column = output.get(i);
      DataType writeType = blobs.get(column.name());
      if (writeType == null || writeType.sameType(column.dataType())) {
        continue;
      }
      int ordinal = i;
      List<Expression> values = WriteColumnValues.of(query, ordinal);
      if (values.size() == 1 && isBinaryInQuery(values.get(0), query.children().head())) {
        // Spark may have taken a descriptor apart to check its parts for nulls.
        query = WriteColumnValues.mapValues(query, ordinal, column.dataType(),
            value -> (Expression) value.references().toSeq().head());
        Attribute blob = query.output().apply(ordinal);
        query = new BlobSources(query, Map.of(blob.exprId().id(), blob)).readAsBinary();
        output.set(i, (AttributeReference) column.withDataType(writeType).withNullability(true));
      }
      if (values.isEmpty() || !values.stream().allMatch(BlobWrites::isBytes)) {
        continue;
      }
      query = WriteColumnValues.mapValues(query, ordinal, writeType,
          value -> bytes(value, writeType));
      output.set(i, (AttributeReference) column.withDataType(writeType).withNullability(true));
    }
    return query == write.query() ? (LogicalPlan) write : (LogicalPlan) write.withNewQuery(query)
        .withNewTable(withOutput(relation, output));
  }

  /** Whether a value references one column, which a child of the query derives from bytes. */
  private static boolean isBinaryInQuery(Expression value, LogicalPlan query) {
    if (value.references().size() != 1) {
      return false;
    }
    Attribute column = value.references().toSeq().head();
    return query.exists(node -> node instanceof Project project
        && project.projectList().exists(one -> one instanceof Alias alias
            && alias.exprId().equals(column.exprId()) && alias.child() instanceof BlobValue));
  }

  private static DataSourceV2Relation withOutput(
      DataSourceV2Relation relation, List<AttributeReference> output) {
    return (DataSourceV2Relation) copyWith(relation,
        part -> part == relation.output() ? Seqs.from(output) : part);
  }

  static LogicalPlan copyWith(LogicalPlan plan, UnaryOperator<Object> change) {
    Object[] parts = PlanArguments.replace(plan, change);
    return parts == null ? plan : plan.makeCopy(parts);
  }

  /** Whether a value only consists of bytes and nulls. */
  private static boolean isBytes(Expression value) {
    if (value instanceof BlobValue || isNull(value)) {
      return true;
    }
    return BlobAssignments.isConditional(value) && resultChildren(value).stream().allMatch(
        BlobWrites::isBytes);
  }

  static boolean isNull(Expression value) {
    return value instanceof Literal literal && literal.value() == null
        || value instanceof Cast cast && isNull(cast.child());
  }

  private static List<Expression> resultChildren(Expression conditional) {
    List<Expression> all = new ArrayList<>();
    for (int i = 0; i < conditional.children().size(); i++) {
      if (BlobAssignments.isResultChild(conditional, i)) {
        all.add((Expression) conditional.children().apply(i));
      }
    }
    return all;
  }

  static Expression mapResultChildren(
      Expression conditional, Function<Expression, Expression> change) {
    List<Expression> parts = new ArrayList<>(CollectionConverters.asJava(conditional.children()));
    for (int i = 0; i < parts.size(); i++) {
      if (BlobAssignments.isResultChild(conditional, i)) {
        parts.set(i, change.apply(parts.get(i)));
      }
    }
    return (Expression) conditional.withNewChildren(Seqs.from(parts));
  }

  private static Expression bytes(Expression value, DataType writeType) {
    return value instanceof BlobValue blob ? blob.child()
        : isNull(value) ? Literal.create(null, writeType)
        : mapResultChildren(value, part -> bytes(part, writeType));
  }

  /** A delta write. */
  private static final class Delta {
    private final WriteDelta write;
    private final LanceRowLevelOperation change;
    private final Map<String, DataType> blobs;
    private final List<AttributeReference> output;
    /** Columns of the scan, by id. */
    private final Map<Long, String> scanColumns = new HashMap<>();

    Delta(WriteDelta write, LanceRowLevelOperation change, Map<String, DataType> blobs) {
      this.write = write;
      this.change = change;
      this.blobs = blobs;
      this.output = new ArrayList<>(CollectionConverters.asJava(
          ((DataSourceV2Relation) write.table()).output()));
      collectScanColumns(write.query());
    }

    private void collectScanColumns(LogicalPlan plan) {
      CollectionConverters.asJava(plan.children()).forEach(this::collectScanColumns);
      if (plan instanceof DataSourceV2Relation relation
          && relation.table() instanceof RowLevelOperationTable) {
        CollectionConverters.asJava(relation.output())
            .forEach(one -> scanColumns.put(one.exprId().id(), one.name()));
      } else if (plan instanceof Project project && plan != write.query()) {
        for (NamedExpression one : CollectionConverters.asJava(project.projectList())) {
          if (one instanceof Alias alias && alias.child() instanceof Attribute blob
              && scanColumns.containsKey(blob.exprId().id())) {
            scanColumns.put(alias.exprId().id(), scanColumns.get(blob.exprId().id()));
          }
        }
      }
    }

    LogicalPlan plan() {
      ProjectingInternalRow row = write.projections().rowProjection().get();
      StructType schema = row.schema();
      LogicalPlan query = write.query();
      List<Integer> unassigned = new ArrayList<>();
      for (int i = 0; i < schema.length(); i++) {
        StructField column = schema.apply(i);
        DataType writeType = blobs.get(column.name());
        if (writeType == null) {
          continue;
        }
        int ordinal = (Integer) row.colOrdinals().apply(i);
        List<Expression> values = WriteColumnValues.of(query, ordinal);
        boolean isMerge = change.command() == RowLevelOperation.Command.MERGE;
        // Spark would reject null for a column that is not nullable.
        if (isMerge && column.nullable() && WriteColumnValues.areUnassigned(query, ordinal,
            value -> isCurrentValue(value, column.name()))) {
          query = WriteColumnValues.mapValues(query, ordinal, column.dataType(),
              value -> Literal.create(null, column.dataType()));
          unassigned.add(i);
        } else if (!writeType.sameType(column.dataType()) && !change.isUnassigned(i)
            && !values.isEmpty()) {
          boolean isOnlyBytes = values.stream().allMatch(BlobWrites::isBytes);
          DataType type = isOnlyBytes ? writeType : new StructType().add(BYTES, writeType, true)
              .add(COLUMN, DataTypes.StringType, true);
          query = WriteColumnValues.mapValues(query, ordinal, type, value -> isOnlyBytes
              ? bytes(value, writeType)
              : bytesOrColumn(value, writeType, type, column.name(), false));
          StructField[] fields = schema.fields().clone();
          fields[i] = new StructField(column.name(), type, true, column.metadata());
          schema = new StructType(fields);
          for (int j = 0; j < output.size(); j++) {
            if (output.get(j).name().equals(column.name())) {
              output.set(j, (AttributeReference) output.get(j).withDataType(type)
                  .withNullability(true));
            }
          }
        }
      }
      change.removeAssigned(unassigned, schema.length());
      return query == write.query() ? write : copyDelta(query, schema, row);
    }

    private LogicalPlan copyDelta(LogicalPlan query, StructType schema, ProjectingInternalRow row) {
      ProjectingInternalRow projection = PlanArguments.instantiate(
          ProjectingInternalRow.class, schema, PlanArguments.of(row)[1]);
      WriteDeltaProjections current = write.projections();
      WriteDeltaProjections projections = new WriteDeltaProjections(
          Option.apply(projection), current.rowIdProjection(), current.metadataProjection());
      DataSourceV2Relation table = withOutput((DataSourceV2Relation) write.table(), output);
      return copyWith(write, part -> part == write.query() ? query
          : part == write.projections() ? projections : part == write.table() ? table : part);
    }

    /** Whether a value is the current value of a column. */
    private boolean isCurrentValue(Expression value, String column) {
      return value instanceof Attribute one && column.equals(scanColumns.get(one.exprId().id()));
    }

    /** Bytes, or the name of the column that has them. */
    private Expression bytesOrColumn(
        Expression value, DataType writeType, DataType type, String column, boolean checksNull) {
      if (isNull(value)) {
        return Literal.create(null, type);
      }
      if (value instanceof BlobValue blob) {
        return of(blob.child(), blob.child(), Literal.create(null, DataTypes.StringType), type,
            checksNull);
      }
      if (value instanceof Attribute one && blobs.containsKey(scanColumns.get(one.exprId().id()))) {
        return of(value, Literal.create(null, writeType), text(scanColumns.get(one.exprId().id())),
            type,
            checksNull);
      }
      if (!BlobAssignments.isConditional(value)) {
        throw BlobSources.unsupported(column);
      }
      boolean isNullChecked = checksNull || value instanceof Coalesce;
      return mapResultChildren(value,
          part -> bytesOrColumn(part, writeType, type, column, isNullChecked));
    }

    private static Expression of(
        Expression value, Expression bytes, Expression column, DataType type, boolean checksNull) {
      Expression struct = new CreateNamedStruct(
          Seqs.from(List.of(text(BYTES), bytes, text(COLUMN), column)));
      return checksNull ? new If(new IsNull(value), Literal.create(null, type), struct) : struct;
    }

    private static Expression text(String name) {
      return Literal.create(UTF8String.fromString(name), DataTypes.StringType);
    }
  }
}
