package org.pysparklance.rules;

import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.MetadataAttribute;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.DeleteAction;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.MetadataBuilder;
import org.pysparklance.catalog.LanceTable;
import org.pysparklance.compat.PlanArguments;
import org.pysparklance.python.Description;
import org.pysparklance.python.Options;
import scala.Option;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/** Hidden columns of the target in UPDATE and MERGE, before Spark aligns assignments with columns. */
final class MetadataColumns {
  private MetadataColumns() {}

  /**
   * Refuses assignments to row ids and versions, which Lance assigns; Spark drops assignments to
   * hidden columns. Spark 4.0 itself assigns each that a statement names to itself.
   */
  static void refuseValues(LogicalPlan command, LogicalPlan target) {
    List<String> metadataColumns = of(target);
    for (Expression expression : CollectionConverters.asJava(command.expressions())) {
      expression.foreach(one -> {
        String name = one instanceof Assignment assignment
            && !assignment.key().semanticEquals(assignment.value())
            ? nameOf(assignment.key()) : "";
        if (metadataColumns.contains(name.toLowerCase(Locale.ROOT))) {
          throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the lineage column " + name
              + " cannot be set\n  hint: leave it out of SET and INSERT");
        }
        return BoxedUnit.UNIT;
      });
    }
  }

  /** Whether an expression of a MERGE may name a hidden column of its target. */
  static boolean areReferenced(MergeIntoTable merge) {
    List<String> metadataColumns = of(merge.targetTable());
    return !metadataColumns.isEmpty()
        && CollectionConverters.asJava(merge.expressions()).stream().anyMatch(
        expression -> expression.exists(
            part -> metadataColumns.contains(nameOf(part).toLowerCase(Locale.ROOT))));
  }

  /**
   * A MERGE whose target shows its hidden columns with a default: Spark requires a value for each
   * column that a MERGE names in the rows that it inserts, and drops this one.
   *
   * <p>A MERGE that only inserts is an append to Spark, which would write the hidden columns. It gets
   * a clause that deletes nothing. One for matched rows would let Spark refuse several matches.
   */
  static MergeIntoTable withDefaults(MergeIntoTable merge) {
    boolean isInsertOnly =
        merge.matchedActions().isEmpty() && merge.notMatchedBySourceActions().isEmpty();
    Object[] parts = PlanArguments.of(merge);
    for (int i = 0; i < parts.length; i++) {
      if (parts[i] == merge.targetTable()) {
        parts[i] = withDefaults(merge.targetTable());
      } else if (isInsertOnly
          && merge.productElementName(i).equals("notMatchedBySourceActions")) {
        parts[i] = Seqs.of(new DeleteAction(Option.apply(Literal.FalseLiteral())));
      }
    }
    return (MergeIntoTable) merge.makeCopy(parts);
  }

  private static LogicalPlan withDefaults(LogicalPlan plan) {
    if (!(plan instanceof DataSourceV2Relation relation)) {
      return (LogicalPlan) plan.mapChildren(child -> withDefaults((LogicalPlan) child));
    }
    DataSourceV2Relation withMetadata = relation.withMetadataColumns();
    Object[] parts =
        PlanArguments.replace(withMetadata, expression -> expression == withMetadata.output()
        ? ((Seq<?>) expression).map(one -> withDefault((Attribute) one)) : expression);
    return parts == null ? withMetadata : (LogicalPlan) withMetadata.makeCopy(parts);
  }

  private static Attribute withDefault(Attribute column) {
    return !MetadataAttribute.isValid(column.metadata()) ? column
        : column.withMetadata(new MetadataBuilder().withMetadata(column.metadata())
            .putString("CURRENT_DEFAULT", "0L").putString("EXISTS_DEFAULT", "0L").build());
  }

  /** The names of those of a target that is a Lance table, below aliases. */
  private static List<String> of(LogicalPlan target) {
    if (EliminateSubqueryAliases.apply(target) instanceof DataSourceV2Relation relation
        && relation.table() instanceof LanceTable table && !Options.isTimeTravel(table.options())) {
      Description found = table.loadDescription();
      return found == null ? List.of() : found.lineageColumns();
    }
    return List.of();
  }

  /** The last part of the name of a column; empty for other expressions. */
  private static String nameOf(Object expression) {
    return expression instanceof UnresolvedAttribute attribute ? attribute.nameParts().last()
        : expression instanceof Attribute column ? column.name() : "";
  }
}
