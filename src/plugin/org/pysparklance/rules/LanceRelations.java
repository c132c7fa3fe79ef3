package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.pysparklance.catalog.LanceTable;

/** Finds relations of Lance tables in plans. */
final class LanceRelations {
  private LanceRelations() {}

  static boolean isLance(Object node) {
    return node instanceof DataSourceV2Relation relation && relation.table() instanceof LanceTable;
  }

  /** The target of UPDATE, DELETE or MERGE; null for other plans. */
  static LogicalPlan target(LogicalPlan plan) {
    return plan instanceof UpdateTable update ? update.table()
        : plan instanceof DeleteFromTable delete ? delete.table()
        : plan instanceof MergeIntoTable merge ? merge.targetTable() : null;
  }
}
