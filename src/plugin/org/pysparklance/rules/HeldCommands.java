package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.pysparklance.catalog.NamedTable;
import org.pysparklance.catalog.PathCatalog;
import scala.Option;
import scala.Product;

/**
 * Holds UPDATE and MERGE of Lance tables back for {@link BlobAssignments}, before tables are
 * resolved. Statements on tables of other sources stay as they are: rules of these sources, and
 * error messages, would meet the placeholder.
 */
public final class HeldCommands extends Rule<LogicalPlan> {
  private final SparkSession session;

  public HeldCommands(SparkSession session) { this.session = session; }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof WithCTE) {
      return (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
    }
    if (plan instanceof UpdateTable update && !update.resolved() && !isHeld(update.condition())
        && mayBeLance(session, update.table())) {
      Expression condition = update.condition().getOrElse(() -> Literal.TrueLiteral());
      return update.makeCopy(PlanParts.changed(update, part ->
          part == update.condition() ? Option.apply(new HeldCondition(condition)) : part));
    }
    if (plan instanceof MergeIntoTable merge && !merge.resolved()
        && mayBeLance(session, merge.targetTable())) {
      Object[] parts = PlanParts.changed(merge, part -> part == merge.mergeCondition()
          && !(part instanceof HeldCondition) ? new HeldCondition((Expression) part) : part);
      return parts == null ? merge : merge.makeCopy(parts);
    }
    return plan;
  }

  private static boolean isHeld(Option<Expression> condition) {
    return condition.exists(HeldCondition.class::isInstance);
  }

  /** Whether a target is a Lance table, or a name (of a view, of IDENTIFIER) that may mean one. */
  static boolean mayBeLance(SparkSession session, LogicalPlan target) {
    LogicalPlan table = EliminateSubqueryAliases.apply(target);
    if (!(table instanceof UnresolvedRelation named)) {
      return BlobAssignments.hasBlobs(table) || !table.resolved();
    }
    var parts = named.multipartIdentifier();
    if (session.sessionState().catalog().isTempView(parts)) {
      return true;
    }
    var found = session.sessionState().analyzer().CatalogAndIdentifier().unapply(parts).get();
    return found._1() instanceof PathCatalog
        || CatalogV2Util.isSessionCatalog(found._1()) && isLanceOrView(session, found._2());
  }

  /** Whether Spark's own catalog knows a Lance table or a view of this name. */
  private static boolean isLanceOrView(SparkSession session, Identifier ident) {
    if (ident.namespace().length > 1) {
      return false;
    }
    Option<String> database = ident.namespace().length == 0 ? Option.empty()
        : Option.apply(ident.namespace()[0]);
    try {
      CatalogTable known = session.sessionState().catalog()
          .getTableMetadata(new TableIdentifier(ident.name(), database));
      return known.tableType().equals(CatalogTableType.VIEW())
          || NamedTable.isProvider(known.provider().getOrElse(() -> ""));
    } catch (Exception unknown) {  // AnalysisException, which Scala does not declare, and others
      return false;  // Spark looks the name up again, and raises what is to be raised
    }
  }

  /** The command without its placeholder; the same plan where it has none. */
  static LogicalPlan released(LogicalPlan command) {
    Object[] parts = command instanceof UpdateTable || command instanceof MergeIntoTable
        ? PlanParts.changed((Product) command, HeldCommands::releasedPart) : null;
    return parts == null ? command : (LogicalPlan) command.makeCopy(parts);
  }

  static Object releasedPart(Object part) {
    if (part instanceof HeldCondition held) {
      return held.child();
    }
    if (part instanceof Option<?> some && some.isDefined()
        && some.get() instanceof HeldCondition held) {
      return held.child().equals(Literal.TrueLiteral()) ? Option.empty()
          : Option.apply(held.child());
    }
    return part;
  }

  /** Releases what is still held when nothing is resolved any more: error messages show plans. */
  public static final class Release extends Rule<LogicalPlan> {
    @Override public LogicalPlan apply(LogicalPlan plan) {
      return plan instanceof WithCTE
          ? (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child)) : released(plan);
    }
  }
}
