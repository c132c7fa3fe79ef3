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
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
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
import org.pysparklance.compat.PlanParts;
import org.pysparklance.write.RowChange;
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
    if (plan instanceof WriteDelta write && write.operation() instanceof RowChange change
        && change.command() != RowLevelOperation.Command.DELETE
        && write.originalTable() instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable table && write.resolved()
        && write.projections().rowProjection().isDefined() && !table.blobs().isEmpty()) {
      return new Delta(write, change, table.blobs()).plan();
    }
    if (plan instanceof V2WriteCommand write && !(plan instanceof WriteDelta) && plan.resolved()
        && holdsBytes(write.query()) && write.table() instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable table && !table.blobs().isEmpty()) {
      return appended(write, relation, table.blobs());
    }
    return plan;
  }

  /** Whether a query has values for blobs; other writes do not need to resolve the table yet. */
  private static boolean holdsBytes(LogicalPlan query) {
    return query.exists(node -> CollectionConverters.asJava(node.expressions()).stream()
        .anyMatch(one -> one.exists(part -> part instanceof BlobValue)));
  }

  /** Inserted rows, as of a MERGE that only inserts. */
  private static LogicalPlan appended(
      V2WriteCommand write, DataSourceV2Relation relation, Map<String, DataType> blobs) {
    List<AttributeReference> output =
        new ArrayList<>(CollectionConverters.asJava(relation.output()));
    LogicalPlan query = write.query();
    for (int i = 0; i < output.size(); i++) {
      AttributeReference column = output.get(i);
      DataType written = blobs.get(column.name());
      if (written == null || written.sameType(column.dataType())) {
        continue;
      }
      int place = i;
      List<Expression> values = WrittenValues.of(query, place);
      if (values.size() == 1 && isBelow(values.get(0), query.children().head())) {
        // Spark may have taken a descriptor apart to check its parts for nulls.
        query = WrittenValues.with(query, place, column.dataType(),
            value -> (Expression) value.references().toSeq().head());
        Attribute given = query.output().apply(place);
        query = new BlobSources(query, Map.of(given.exprId().id(), given)).asBytes();
        output.set(i, (AttributeReference) column.withDataType(written).withNullability(true));
      }
      if (values.isEmpty() || !values.stream().allMatch(BlobWrites::isBytes)) {
        continue;
      }
      query = WrittenValues.with(query, place, written, value -> bytes(value, written));
      output.set(i, (AttributeReference) column.withDataType(written).withNullability(true));
    }
    return query == write.query() ? (LogicalPlan) write : (LogicalPlan) write.withNewQuery(query)
        .withNewTable(withOutput(relation, output));
  }

  /** Whether a value is made of one column, which a query below makes of bytes. */
  private static boolean isBelow(Expression value, LogicalPlan query) {
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
    return (DataSourceV2Relation) copied(relation,
        part -> part == relation.output() ? CollectionConverters.asScala(output).toSeq() : part);
  }

  static LogicalPlan copied(LogicalPlan plan, UnaryOperator<Object> change) {
    Object[] parts = PlanParts.changed(plan, change);
    return parts == null ? plan : plan.makeCopy(parts);
  }

  /** Whether a value only consists of bytes and nulls. */
  private static boolean isBytes(Expression value) {
    if (value instanceof BlobValue || isNull(value)) {
      return true;
    }
    return BlobAssignments.choosesValues(value) && chosen(value).stream().allMatch(
        BlobWrites::isBytes);
  }

  static boolean isNull(Expression value) {
    return value instanceof Literal literal && literal.value() == null
        || value instanceof Cast cast && isNull(cast.child());
  }

  private static List<Expression> chosen(Expression chooser) {
    List<Expression> all = new ArrayList<>();
    for (int i = 0; i < chooser.children().size(); i++) {
      if (BlobAssignments.isChosen(chooser, i)) {
        all.add((Expression) chooser.children().apply(i));
      }
    }
    return all;
  }

  private static Expression withChosen(
      Expression chooser, Function<Expression, Expression> change) {
    List<Expression> parts = new ArrayList<>(CollectionConverters.asJava(chooser.children()));
    for (int i = 0; i < parts.size(); i++) {
      if (BlobAssignments.isChosen(chooser, i)) {
        parts.set(i, change.apply(parts.get(i)));
      }
    }
    return (Expression) chooser.withNewChildren(CollectionConverters.asScala(parts).toSeq());
  }

  private static Expression bytes(Expression value, DataType written) {
    return value instanceof BlobValue blob ? blob.child()
        : isNull(value) ? Literal.create(null, written)
        : withChosen(value, part -> bytes(part, written));
  }

  /** A delta write. */
  private static final class Delta {
    private final WriteDelta write;
    private final RowChange change;
    private final Map<String, DataType> blobs;
    private final List<AttributeReference> output;
    /** Columns of the scan, by id. */
    private final Map<Long, String> own = new HashMap<>();

    Delta(WriteDelta write, RowChange change, Map<String, DataType> blobs) {
      this.write = write;
      this.change = change;
      this.blobs = blobs;
      this.output = new ArrayList<>(CollectionConverters.asJava(
          ((DataSourceV2Relation) write.table()).output()));
      findOwn(write.query());
    }

    private void findOwn(LogicalPlan plan) {
      CollectionConverters.asJava(plan.children()).forEach(this::findOwn);
      if (plan instanceof DataSourceV2Relation relation
          && relation.table() instanceof RowLevelOperationTable) {
        CollectionConverters.asJava(relation.output())
            .forEach(one -> own.put(one.exprId().id(), one.name()));
      } else if (plan instanceof Project project && plan != write.query()) {
        for (NamedExpression one : CollectionConverters.asJava(project.projectList())) {
          if (one instanceof Alias alias && alias.child() instanceof Attribute blob
              && own.containsKey(blob.exprId().id())) {
            own.put(alias.exprId().id(), own.get(blob.exprId().id()));
          }
        }
      }
    }

    LogicalPlan plan() {
      ProjectingInternalRow row = write.projections().rowProjection().get();
      StructType schema = row.schema();
      LogicalPlan query = write.query();
      List<Integer> kept = new ArrayList<>();
      for (int i = 0; i < schema.length(); i++) {
        StructField column = schema.apply(i);
        DataType written = blobs.get(column.name());
        if (written == null) {
          continue;
        }
        int place = (Integer) row.colOrdinals().apply(i);
        List<Expression> values = WrittenValues.of(query, place);
        boolean isMerge = change.command() == RowLevelOperation.Command.MERGE;
        // Spark would reject null for a column that is not nullable.
        if (isMerge && column.nullable() && WrittenValues.areUnset(query, place, value -> isOwn(value, column.name()))) {
          query = WrittenValues.with(query, place, column.dataType(),
              value -> Literal.create(null, column.dataType()));
          kept.add(i);
        } else if (!written.sameType(column.dataType()) && !change.isUnset(i) && !values.isEmpty()) {
          boolean isWhole = values.stream().allMatch(BlobWrites::isBytes);
          DataType type = isWhole ? written : new StructType().add(BYTES, written, true)
              .add(COLUMN, DataTypes.StringType, true);
          query = WrittenValues.with(query, place, type, value -> isWhole ? bytes(value, written)
              : choice(value, written, type, column.name(), false));
          StructField[] fields = schema.fields().clone();
          fields[i] = new StructField(column.name(), type, true, column.metadata());
          schema = new StructType(fields);
          for (int o = 0; o < output.size(); o++) {
            if (output.get(o).name().equals(column.name())) {
              output.set(o, (AttributeReference) output.get(o).withDataType(type)
                  .withNullability(true));
            }
          }
        }
      }
      change.leaveOut(kept, schema.length());
      return query == write.query() ? write : rebuilt(query, schema, row);
    }

    private LogicalPlan rebuilt(LogicalPlan query, StructType schema, ProjectingInternalRow row) {
      ProjectingInternalRow other = PlanParts.make(
          ProjectingInternalRow.class, schema, PlanParts.of(row)[1]);
      WriteDeltaProjections given = write.projections();
      WriteDeltaProjections projections = new WriteDeltaProjections(
          Option.apply(other), given.rowIdProjection(), given.metadataProjection());
      DataSourceV2Relation table = withOutput((DataSourceV2Relation) write.table(), output);
      return copied(write, part -> part == write.query() ? query
          : part == write.projections() ? projections : part == write.table() ? table : part);
    }

    /** Whether a value is the current value of a column. */
    private boolean isOwn(Expression value, String column) {
      return value instanceof Attribute one && column.equals(own.get(one.exprId().id()));
    }

    /** Bytes, or the name of the column that has them. */
    private Expression choice(
        Expression value, DataType written, DataType type, String column, boolean isTested) {
      if (isNull(value)) {
        return Literal.create(null, type);
      }
      if (value instanceof BlobValue blob) {
        return of(blob.child(), blob.child(), Literal.create(null, DataTypes.StringType), type,
            isTested);
      }
      if (value instanceof Attribute one && blobs.containsKey(own.get(one.exprId().id()))) {
        return of(value, Literal.create(null, written), text(own.get(one.exprId().id())), type,
            isTested);
      }
      if (!BlobAssignments.choosesValues(value)) {
        throw BlobSources.refused(column);
      }
      boolean isAsked = isTested || value instanceof Coalesce;
      return withChosen(value, part -> choice(part, written, type, column, isAsked));
    }

    private static Expression of(
        Expression value, Expression bytes, Expression column, DataType type, boolean isTested) {
      Expression made = new CreateNamedStruct(CollectionConverters.asScala(List.of(
          text(BYTES), bytes, text(COLUMN), column)).toSeq());
      return isTested ? new If(new IsNull(value), Literal.create(null, type), made) : made;
    }

    private static Expression text(String name) {
      return Literal.create(UTF8String.fromString(name), DataTypes.StringType);
    }
  }
}
