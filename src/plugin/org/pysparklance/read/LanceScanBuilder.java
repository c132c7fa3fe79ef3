package org.pysparklance.read;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.*;
import org.apache.spark.sql.connector.expressions.aggregate.*;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Description;
import org.pysparklance.python.PredicateJson;
import org.pysparklance.python.Python;
import org.pysparklance.python.Responses;
import org.pysparklance.python.ScanRequest;

/** Builds a scan of one version with the pushdowns of Spark. */
public final class LanceScanBuilder implements ScanBuilder, SupportsPushDownV2Filters,
    SupportsPushDownRequiredColumns, SupportsPushDownLimit, SupportsPushDownTopN,
    SupportsPushDownAggregates {
  public final Description table;
  public final CaseInsensitiveStringMap options;
  private final PredicateJson translator;
  public StructType columns;
  Predicate[] pushed = new Predicate[0];
  public String filter;
  public int limit = -1;
  private String top;
  String topText = "";
  /** The scans of a command that changes rows; null for those of other queries. */
  public List<LanceScan> operationScans;
  boolean hasStatistics;
  private LanceScan.LocalRows localRows;

  public LanceScanBuilder(Description table, StructType columns, CaseInsensitiveStringMap options) {
    this.table = table;
    this.columns = columns;
    this.options = options;
    this.translator = new PredicateJson(table);
  }

  /** A command that changes rows records all of its scans. */
  public LanceScanBuilder forRowLevelOperation(List<LanceScan> scans) {
    operationScans = scans;
    return this;
  }

  /** The scan reports the statistics of columns also where Spark does not plan by costs. */
  public LanceScanBuilder withStatistics() {
    hasStatistics = true;
    return this;
  }

  @Override public Scan build() {
    if (localRows != null) {
      return localRows;
    }
    LanceScan scan = new LanceScan(this);
    if (operationScans != null) {
      operationScans.add(scan);
    }
    return scan;
  }

  /** The rows of this version, with the pushdowns. */
  ScanRequest request() {
    return ScanRequest.of(options, table).filtered(filter).limited(limit < 0 ? null : limit, top);
  }

  @Override public Predicate[] pushPredicates(Predicate[] predicates) {
    Map<Boolean, List<Predicate>> byTranslatable = Arrays.stream(predicates)
        .collect(Collectors.partitioningBy(one -> translator.all(one) != null));
    pushed = byTranslatable.get(true).toArray(Predicate[]::new);
    // In a canonical order, so that equal scans are recognised.
    filter = pushed.length == 0 ? null : translator.all(Arrays.stream(pushed).distinct()
        .sorted(Comparator.comparing(Predicate::toString)).toArray(Predicate[]::new));
    return byTranslatable.get(false).toArray(Predicate[]::new);
  }

  @Override public Predicate[] pushedPredicates() { return pushed; }

  @Override public void pruneColumns(StructType required) {
    StructType readColumns = columns;
    columns = ColumnTypes.withWholeMaps(required, readColumns);
    if (columns.isEmpty() && LanceScan.needsColumn()) {
      Arrays.stream(readColumns.fields()).min(Comparator.comparing(one ->
          one.dataType().defaultSize()))
          .ifPresent(smallest -> columns = new StructType().add(smallest));
    }
  }

  /** Every task stops at the limit; Spark applies it again to all rows. */
  @Override public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  /**
   * Each task reads the rows that may be among its first ones, in zones that may have the first of
   * all rows; Spark sorts the result.
   */
  @Override public boolean pushTopN(SortOrder[] orders, int rows) {
    String column = nameOf(orders[0].expression());
    if (table.rows() < 0 || !Arrays.asList(columns.fieldNames()).contains(column)) {
      return false;
    }
    boolean descending = orders[0].direction() == SortDirection.DESCENDING;
    if (filter == null && table.hasBounds(column)) {
      filter = Python.firstRowsPredicate(request(), column, rows, descending);
    }
    top = JsonNodeFactory.instance.objectNode().put("column", column).put("rows", rows)
        .put("descending", descending)
        .put("nulls_first", orders[0].nullOrdering() == NullOrdering.NULLS_FIRST)
        .put("has_more_columns", orders.length > 1).toString();
    topText = ", top: " + rows + " by " + orders[0];
    return true;
  }

  @Override public boolean isPartiallyPushed() { return true; }

  /** The name of a top-level column; an empty name for other expressions. */
  private static String nameOf(Expression expression) {
    return expression instanceof NamedReference column && column.fieldNames().length == 1
        ? column.fieldNames()[0] : "";
  }

  @Override public boolean supportCompletePushDown(Aggregation aggregation) {
    return pushAggregation(aggregation);
  }

  /** Counts and bounds, if the metadata or an index has them. */
  @Override public boolean pushAggregation(Aggregation aggregation) {
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    localRows = null;
    if (table.rows() < 0) {
      return false;
    }
    if (filter != null || functions.length == 0 || aggregation.groupByExpressions().length > 0) {
      localRows = IndexCounts.localRows(table, columns, request(), aggregation);
      return localRows != null;
    }
    Object[] values = new Object[functions.length];
    StructType schema = new StructType();
    for (int i = 0; i < functions.length; i++) {
      JsonNode value = storedValue(functions[i]);
      if (value == null) {
        return false;
      }
      DataType type = typeOf(functions[i]);
      values[i] = value.isNull() ? null : CatalystValues.parse(value.asText(), type);
      schema = schema.add("value " + i, type, true);
    }
    localRows = new LanceScan.LocalRows(schema, new InternalRow[] {new GenericInternalRow(values)},
        "lance " + aggregation + " of " + table.title() + ", answered from metadata");
    return true;
  }

  /** The value of an aggregate over all rows; null if it takes a scan. */
  private JsonNode storedValue(AggregateFunc function) {
    if (function instanceof CountStar) {
      // The description has the number, too, but the table may have been replaced since.
      return Python.counts(request(), null).get(0).get(1);
    }
    boolean isCount = function instanceof Count count && !count.isDistinct();
    boolean isBound = function instanceof Min || function instanceof Max;
    String column = nameOf(function.children()[0]);
    boolean hasStoredBounds = (isCount || isBound && CatalystValues.canParse(typeOf(function)))
        && (table.lineageColumns().contains(column) || table.hasBounds(column));
    Responses.Bounds bounds = hasStoredBounds ? Python.bounds(request(), column) : null;
    if (bounds == null || !isCount && bounds.bounds() == null) {
      return null;
    }
    return isCount ? bounds.count() : bounds.bounds().get(function instanceof Min ? 0 : 1);
  }

  /** Of bounds the column's own. */
  private DataType typeOf(AggregateFunc function) {
    String column = function instanceof Min || function instanceof Max
        ? nameOf(function.children()[0]) : "";
    return Arrays.stream(columns.fields()).filter(one -> one.name().equals(column))
        .map(StructField::dataType).findFirst().orElse(DataTypes.LongType);
  }
}
