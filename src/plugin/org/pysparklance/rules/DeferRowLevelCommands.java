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
import org.pysparklance.catalog.LanceCatalogTable;
import org.pysparklance.catalog.PathCatalog;
import org.pysparklance.compat.PlanArguments;
import scala.Option;
import scala.Product;

/**
 * Defers UPDATE and MERGE of Lance tables for {@link BlobAssignments}, before tables are resolved.
 * Statements on tables of other sources are unchanged, as rules of these sources and error messages
 * must not see the placeholder.
 */
public final class DeferRowLevelCommands extends Rule<LogicalPlan> {
  private final SparkSession session;

  public DeferRowLevelCommands(SparkSession session) { this.session = session; }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof WithCTE) {
      return (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
    }
    if (plan instanceof UpdateTable update && !update.resolved() && !isDeferred(update.condition())
        && mayBeLance(session, update.table())) {
      Expression condition = update.condition().getOrElse(() -> Literal.TrueLiteral());
      return update.makeCopy(PlanArguments.replace(update, part ->
          part == update.condition() ? Option.apply(new DeferredCondition(condition)) : part));
    }
    if (plan instanceof MergeIntoTable merge && !merge.resolved()
        && mayBeLance(session, merge.targetTable())) {
      Object[] parts = PlanArguments.replace(merge, part -> part == merge.mergeCondition()
          && !(part instanceof DeferredCondition) ? new DeferredCondition((Expression) part)
          : part);
      return parts == null ? merge : merge.makeCopy(parts);
    }
    return plan;
  }

  private static boolean isDeferred(Option<Expression> condition) {
    return condition.exists(DeferredCondition.class::isInstance);
  }

  /** Whether a target is a Lance table, or a name (of a view, of IDENTIFIER) that may mean one. */
  static boolean mayBeLance(SparkSession session, LogicalPlan target) {
    LogicalPlan table = EliminateSubqueryAliases.apply(target);
    if (!(table instanceof UnresolvedRelation relation)) {
      return BlobAssignments.hasBlobs(table) || !table.resolved();
    }
    var nameParts = relation.multipartIdentifier();
    if (session.sessionState().catalog().isTempView(nameParts)) {
      return true;
    }
    var resolved =
        session.sessionState().analyzer().CatalogAndIdentifier().unapply(nameParts).get();
    return resolved._1() instanceof PathCatalog
        || CatalogV2Util.isSessionCatalog(resolved._1()) && isLanceOrView(session, resolved._2());
  }

  /** Whether Spark's own catalog knows a Lance table or a view of this name. */
  private static boolean isLanceOrView(SparkSession session, Identifier ident) {
    if (ident.namespace().length > 1) {
      return false;
    }
    Option<String> database = ident.namespace().length == 0 ? Option.empty()
        : Option.apply(ident.namespace()[0]);
    try {
      CatalogTable metadata = session.sessionState().catalog()
          .getTableMetadata(new TableIdentifier(ident.name(), database));
      return metadata.tableType().equals(CatalogTableType.VIEW())
          || LanceCatalogTable.isProvider(metadata.provider().getOrElse(() -> ""));
    } catch (Exception unresolvable) {  // AnalysisException, which Scala does not declare, too
      return false;  // Spark looks the name up again, and raises what is to be raised
    }
  }

  /** The command without its placeholder; the same plan if it has none. */
  static LogicalPlan restore(LogicalPlan command) {
    Object[] parts = command instanceof UpdateTable || command instanceof MergeIntoTable
        ? PlanArguments.replace((Product) command, DeferRowLevelCommands::restorePart) : null;
    return parts == null ? command : (LogicalPlan) command.makeCopy(parts);
  }

  static Object restorePart(Object part) {
    if (part instanceof DeferredCondition deferred) {
      return deferred.child();
    }
    if (part instanceof Option<?> option && option.isDefined()
        && option.get() instanceof DeferredCondition deferred) {
      return deferred.child().equals(Literal.TrueLiteral()) ? Option.empty()
          : Option.apply(deferred.child());
    }
    return part;
  }

  /** Releases remaining commands at the end of resolution, since error messages show plans. */
  public static final class Release extends Rule<LogicalPlan> {
    @Override public LogicalPlan apply(LogicalPlan plan) {
      return plan instanceof WithCTE
          ? (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child)) : restore(plan);
    }
  }
}
