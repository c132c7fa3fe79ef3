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
import org.pysparklance.compat.PlanParts;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The values of a column in the query of a write: one, or one for each clause. */
final class WrittenValues {
  private static final Seq<String> NO_NAMES =
      CollectionConverters.asScala(List.<String>of()).toSeq();

  private WrittenValues() {}

  static List<Expression> of(LogicalPlan query, int place) {
    List<Expression> all = new ArrayList<>();
    if (query instanceof Project project) {
      all.add(unnamed((Expression) project.projectList().apply(place)));
    } else if (query instanceof MergeRows rows) {
      CollectionConverters.asJava(rows.outputs())
          .forEach(one -> all.add(unnamed(one.apply(place))));
    }
    return all;
  }

  /** Whether all updates keep the current value, and inserted rows have null. */
  static boolean areUnset(LogicalPlan query, int place, Predicate<Expression> isOwn) {
    if (!(query instanceof MergeRows rows)) {
      return false;
    }
    for (Seq<Expression> one : CollectionConverters.asJava(rows.outputs())) {
      boolean updates = unnamed(one.head()) instanceof Literal action
          && Objects.equals(action.value(), RowDeltaUtils.UPDATE_OPERATION());
      Expression value = unnamed(one.apply(place));
      if (updates ? !isOwn.test(value) : !BlobWrites.isNull(value)) {
        return false;
      }
    }
    return true;
  }

  /** A value without its alias, and without a null check, which Python repeats. */
  private static Expression unnamed(Expression value) {
    return value instanceof Alias alias ? unnamed(alias.child())
        : value instanceof AssertNotNull checked ? unnamed(checked.child()) : value;
  }

  static LogicalPlan with(
      LogicalPlan query, int place, DataType type, Function<Expression, Expression> change) {
    if (query instanceof Project project) {
      List<NamedExpression> all =
          new ArrayList<>(CollectionConverters.asJava(project.projectList()));
      NamedExpression given = all.get(place);
      all.set(place, new Alias(change.apply(unnamed((Expression) given)), given.name(),
          given.exprId(), given.qualifier(), Option.empty(), NO_NAMES));
      return new Project(CollectionConverters.asScala(all).toSeq(), project.child());
    }
    MergeRows rows = (MergeRows) query;
    return BlobWrites.copied(rows, part ->
        part instanceof Seq<?> some && !some.isEmpty()
            && some.head() instanceof MergeRows.Instruction
            ? mapped(some, one -> changed((Expression) one, place, change))
        : part == rows.output() ? mapped(rows.output(), one ->
            one == rows.output().apply(place) ? ((Attribute) one).withDataType(type)
                .withNullability(true) : one)
        : part);
  }

  private static Seq<Object> mapped(Seq<?> all, Function<Object, Object> change) {
    List<Object> made = new ArrayList<>();
    CollectionConverters.asJava(all).forEach(one -> made.add(change.apply(one)));
    return CollectionConverters.asScala(made).toSeq();
  }

  private static Expression changed(
      Expression instruction, int place, Function<Expression, Expression> change) {
    Object[] parts = PlanParts.changed(instruction, part -> {
      if (!(part instanceof Seq<?> values) || values.size() <= place) {
        return part;
      }
      List<Object> all = new ArrayList<>(CollectionConverters.asJava(values));
      all.set(place, change.apply(unnamed((Expression) all.get(place))));
      return CollectionConverters.asScala(all).toSeq();
    });
    return parts == null ? instruction : instruction.makeCopy(parts);
  }
}
