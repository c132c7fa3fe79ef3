package org.pysparklance.read;

import java.util.Collection;
import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.partitioning.UnknownPartitioning;
import org.apache.spark.sql.internal.SQLConf;
import org.pysparklance.python.PythonRead;
import org.pysparklance.python.ScanRequest;

/** The Python tasks of a scan, each with one key if a partitioning was reported to Spark. */
final class ScanTasks {
  private final LanceScan scan;
  /** The tasks of all rows. */
  private PythonRead all;
  /** The tasks that were planned last, possibly with a runtime filter. */
  private PythonRead last;
  /** The partitioning that was reported to Spark; null if none was. */
  private List<String> keyColumns;
  private KeyGroups groups;

  ScanTasks(LanceScan scan, List<String> keyColumns) {
    this.scan = scan;
    this.keyColumns = keyColumns;
  }

  synchronized List<String> keyColumns() { return keyColumns; }

  /** The partitioning by some of the columns, if each task has one value of them. */
  synchronized Partitioning partitionBy(Collection<String> columns) {
    groups = columns.isEmpty() ? null : groupsOf(scan.request(), columns);
    keyColumns = groups == null ? null : groups.columns();
    all = null;
    return groups == null ? new UnknownPartitioning(0) : groups.partitioning();
  }

  /** Plans the tasks of all rows, or of a runtime filter, as JSON. */
  synchronized InputPartition[] partitions(String filter) {
    ScanRequest wanted = filter == null ? scan.request() : scan.request().filtered(filter);
    if (keyColumns == null) {
      last = filter == null ? all() : read(wanted);
      return last.partitions();
    }
    KeyGroups found = filter == null ? groups() : groupsOf(wanted, keyColumns);
    if (found == null || !found.columns().equals(keyColumns)) {
      throw new IllegalStateException("[LANCE_STORAGE] the zone maps of the analysis "
          + "cannot be read again\n  hint: try again, or set " + SQLConf.V2_BUCKETING_ENABLED().key()
          + " to false");
    }
    return found.keyed(filter == null ? all() : read(found.with(wanted)));
  }

  /** Readers of the planned tasks. */
  synchronized PartitionReaderFactory readers() { return (last == null ? all() : last).readers(); }

  private PythonRead all() {
    if (all == null) {
      all = read(groups() == null ? scan.request() : groups.with(scan.request()));
    }
    return all;
  }

  private KeyGroups groups() {
    if (groups == null && keyColumns != null) {
      groups = groupsOf(scan.request(), keyColumns);
    }
    return groups;
  }

  private KeyGroups groupsOf(ScanRequest wanted, Collection<String> columns) {
    return KeyGroups.of(wanted, scan.readSchema(), columns);
  }

  private PythonRead read(ScanRequest wanted) {
    return PythonRead.plan(
        wanted, scan.readSchema(), scan.readsBatches() ? LanceScan.columnar() : null);
  }
}
