package org.pysparklance;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.*;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Collects what Spark pushes down into one scan. */
final class LanceScanBuilder implements SupportsPushDownV2Filters, SupportsPushDownRequiredColumns,
    SupportsPushDownLimit, SupportsPushDownAggregates {
  private final Description table;
  private final CaseInsensitiveStringMap options;
  private final PredicateJson translator;
  private StructType columns;
  private Predicate[] pushed = new Predicate[0];
  private int limit = -1;
  private LocalRows answer;

  LanceScanBuilder(Description table, StructType columns, CaseInsensitiveStringMap options) {
    this.table = table;
    this.columns = columns;
    this.options = options;
    this.translator = new PredicateJson(columns, table);
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    List<Predicate> here = new ArrayList<>();
    List<Predicate> rest = new ArrayList<>();
    for (Predicate predicate : predicates) {
      boolean known =
          table.canPushDown() && translator.all(new Predicate[] {predicate}) != null;
      (known ? here : rest).add(predicate);
    }
    pushed = here.toArray(new Predicate[0]);
    return rest.toArray(new Predicate[0]);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed;
  }

  @Override
  public void pruneColumns(StructType required) {
    if (table.canPushDown()) {
      columns = required;
    }
  }

  @Override
  public boolean pushLimit(int rows) {
    limit = table.canPushDown() ? rows : -1;
    return table.canPushDown();
  }

  /** Every task stops at the limit; Spark cuts what they return together. */
  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return compute(aggregation) != null;
  }

  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    answer = compute(aggregation);
    return answer != null;
  }

  /** The one row of counts and of bounds of lineage columns, if the metadata can tell. */
  private LocalRows compute(Aggregation aggregation) {
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    if (pushed.length > 0 || !table.canPushDown() || table.rows() < 0 || functions.length == 0
        || aggregation.groupByExpressions().length > 0) {
      return null;
    }
    Object[] values = new Object[functions.length];
    StructType schema = new StructType();
    for (int i = 0; i < functions.length; i++) {
      if (functions[i] instanceof CountStar) {
        values[i] = table.rows();
      } else {
        Metadata bounds = bounds(functions[i]);
        if (bounds == null) {
          return null;
        }
        String end = functions[i] instanceof Min ? "min" : "max";
        values[i] = bounds.contains(end) ? bounds.getLong(end) : null;
      }
      schema = schema.add("value " + i, DataTypes.LongType, true);
    }
    String text = "lance " + aggregation + " of " + table.root() + " version " + table.version()
        + ", answered from metadata";
    return new LocalRows(schema, new InternalRow[] {new GenericInternalRow(values)}, text);
  }

  /** Smallest and largest value of a lineage column; null when Python does not know either. */
  private Metadata bounds(AggregateFunc function) {
    if (function.children().length != 1
        || !(function instanceof Min || function instanceof Max)
        || !(function.children()[0] instanceof NamedReference reference)
        || reference.fieldNames().length != 1
        || !table.hasLineage(reference.fieldNames()[0])) {
      return null;
    }
    Metadata bounds = Python.call("bounds", options, "_lance.column", reference.fieldNames()[0]);
    return bounds.contains("unknown") ? null : bounds;
  }

  @Override
  public Scan build() {
    if (answer != null) {
      return answer;
    }
    String filter = pushed.length == 0 ? null : translator.all(pushed);
    return new LanceScan(table, options, columns, pushed, filter, limit);
  }

  /** A scan whose rows are known while planning: Spark starts no task for it. */
  record LocalRows(StructType readSchema, InternalRow[] rows, String description)
      implements LocalScan {}
}
