package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.AnalysisHelper$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.pysparklance.catalog.LanceTable;
import scala.runtime.AbstractPartialFunction;

/**
 * Reads columns of {@code CHAR(n)} and {@code VARCHAR(n)} as strings in streams, as Spark does in
 * batch queries. For a stream of a table by name it keeps the declared types, which it then refuses
 * as an internal error.
 */
public final class ReplaceCharVarcharInStreams extends Rule<LogicalPlan> {
  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (SQLConf.get().preserveCharVarcharTypeInfo()
        || !plan.exists(ReplaceCharVarcharInStreams::hasDeclaredLengths)) {
      return plan;
    }
    return AnalysisHelper$.MODULE$.allowInvokingTransformsInAnalyzer(
        () -> (LogicalPlan) plan.transformAllExpressions(new LengthToString()));
  }

  private static boolean hasDeclaredLengths(LogicalPlan node) {
    return node instanceof StreamingRelationV2 stream && stream.table() instanceof LanceTable
        && stream.output().exists(ReplaceCharVarcharInStreams::hasDeclaredLength);
  }

  private static boolean hasDeclaredLength(Expression part) {
    return part instanceof AttributeReference column
        && CharVarcharUtils.hasCharVarchar(column.dataType());
  }

  private static final class LengthToString extends AbstractPartialFunction<Expression, Expression> {
    @Override public boolean isDefinedAt(Expression part) { return hasDeclaredLength(part); }

    @Override public Expression apply(Expression part) {
      AttributeReference column = (AttributeReference) part;
      StructField field = CharVarcharUtils.replaceCharVarcharWithStringInSchema(
          new StructType(new StructField[] {new StructField(
              column.name(), column.dataType(), column.nullable(), column.metadata())}))
          .apply(0);
      return column.withDataType(field.dataType()).withMetadata(field.metadata());
    }
  }
}
