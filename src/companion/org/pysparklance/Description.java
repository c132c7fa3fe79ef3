package org.pysparklance;

import org.apache.spark.sql.types.*;

/**
 * What Python says of one version of a table.
 *
 * @param schema the columns, as the options of the read narrow them
 * @param facts root, version, rows, fragments, lineage columns, widths of columns, abilities
 */
record Description(StructType schema, Metadata facts) {
  /** The root of the table or branch. */
  String root() {
    return facts.getString("root");
  }

  String version() {
    return Long.toString(facts.getLong("version"));
  }

  /** Live rows; -1 when that takes more than the manifest to tell. */
  long rows() {
    return facts.getLong("rows");
  }

  long fragments() {
    return facts.getLong("fragments");
  }

  /** Whether scans of this read can be narrowed by what Spark pushes down. */
  boolean canPushDown() {
    return facts.getBoolean("pushdown");
  }

  boolean hasLineage(String column) {
    return facts.getMetadata("lineage").contains(column);
  }

  /** Whether conditions on the column mean in Python what they mean here. */
  boolean isFilterable(String column) {
    return hasLineage(column) || facts.getMetadata("filterable").contains(column);
  }

  /** Bytes of one row of the given columns, roughly. */
  long rowBytes(StructType columns) {
    Metadata widths = facts.getMetadata("widths");
    long sum = 8;
    for (StructField column : columns.fields()) {
      long whole = widths.contains(column.name()) ? widths.getLong(column.name()) : 8;
      int index = schema.getFieldIndex(column.name()).isDefined()
          ? schema.fieldIndex(column.name()) : -1;
      int all = index < 0 ? 0 : schema.fields()[index].dataType().defaultSize();
      int some = column.dataType().defaultSize();
      sum += some < all ? Math.max(1, whole * some / all) : whole;
    }
    return sum;
  }
}
