package org.pysparklance.rules;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.Function;
import java.util.function.Predicate;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.util.RowDeltaUtils;
import org.apache.spark.sql.types.DataType;
import org.pysparklance.compat.PlanArguments;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The values of a column in the query of a write: one, or one for each clause. */
final class WriteColumnValues {
  private WriteColumnValues() {}

  static List<Expression> of(LogicalPlan query, int ordinal) {
    List<Expression> expressions = new ArrayList<>();
    if (query instanceof Project project) {
      expressions.add(unwrap((Expression) project.projectList().apply(ordinal)));
    } else if (query instanceof MergeRows rows) {
      CollectionConverters.asJava(rows.outputs())
          .forEach(one -> expressions.add(unwrap(one.apply(ordinal))));
    }
    return expressions;
  }

  /** Whether all updates keep the current value, and inserted rows have null. */
  static boolean areUnassigned(LogicalPlan query, int ordinal,
      Predicate<Expression> isCurrentValue) {
    if (!(query instanceof MergeRows rows)) {
      return false;
    }
    for (Seq<Expression> row : CollectionConverters.asJava(rows.outputs())) {
      boolean isUpdate = unwrap(row.head()) instanceof Literal action
          && Objects.equals(action.value(), RowDeltaUtils.UPDATE_OPERATION());
      Expression value = unwrap(row.apply(ordinal));
      if (isUpdate ? !isCurrentValue.test(value) : !BlobWrites.isNull(value)) {
        return false;
      }
    }
    return true;
  }

  /** A value without its alias, and without a null check, which Python repeats. */
  private static Expression unwrap(Expression value) {
    return value instanceof Alias alias ? unwrap(alias.child())
        : value instanceof AssertNotNull assertion ? unwrap(assertion.child()) : value;
  }

  static LogicalPlan mapValues(
      LogicalPlan query, int ordinal, DataType type, Function<Expression, Expression> function) {
    if (query instanceof Project project) {
      List<NamedExpression> expressions =
          new ArrayList<>(CollectionConverters.asJava(project.projectList()));
      NamedExpression expression = expressions.get(ordinal);
      expressions.set(ordinal,
          Aliases.of(function.apply(unwrap((Expression) expression)), expression.name(),
              expression.exprId(), expression.qualifier()));
      return new Project(Seqs.from(expressions), project.child());
    }
    MergeRows rows = (MergeRows) query;
    return BlobWrites.copyWith(rows, part ->
        part instanceof Seq<?> instructions && !instructions.isEmpty()
            && instructions.head() instanceof MergeRows.Instruction
            ? mapSeq(instructions, one -> mapInstruction((Expression) one, ordinal, function))
        : part == rows.output() ? mapSeq(rows.output(), one ->
            one == rows.output().apply(ordinal) ? ((Attribute) one).withDataType(type)
                .withNullability(true) : one)
        : part);
  }

  private static Seq<Object> mapSeq(Seq<?> expressions, Function<Object, Object> function) {
    List<Object> mapped = new ArrayList<>();
    CollectionConverters.asJava(expressions).forEach(one -> mapped.add(function.apply(one)));
    return Seqs.from(mapped);
  }

  private static Expression mapInstruction(
      Expression instruction, int ordinal, Function<Expression, Expression> function) {
    Object[] parts = PlanArguments.replace(instruction, part -> {
      if (!(part instanceof Seq<?> values) || values.size() <= ordinal) {
        return part;
      }
      List<Object> expressions = new ArrayList<>(CollectionConverters.asJava(values));
      expressions.set(ordinal, function.apply(unwrap((Expression) expressions.get(ordinal))));
      return Seqs.from(expressions);
    });
    return parts == null ? instruction : instruction.makeCopy(parts);
  }
}
