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
  private PythonRead allTasks;
  /** The tasks that were planned last, possibly with a runtime filter. */
  private PythonRead lastTasks;
  /** The partitioning that was reported to Spark; null if none was. */
  private List<String> keyColumns;
  private KeyGroups keyGroups;
  private boolean wholeFragments;

  ScanTasks(LanceScan scan, List<String> keyColumns) {
    this.scan = scan;
    this.keyColumns = keyColumns;
  }

  synchronized List<String> keyColumns() { return keyColumns; }

  /** Reads each fragment in one task. */
  synchronized void keepFragmentsWhole() {
    wholeFragments = true;
    allTasks = null;
  }

  /** The partitioning by some of the columns, if each task has one value of them. */
  synchronized Partitioning partitionBy(Collection<String> columns) {
    keyGroups = columns.isEmpty() ? null : loadKeyGroups(scan.request(), columns);
    keyColumns = keyGroups == null ? null : keyGroups.columns();
    allTasks = null;
    return keyGroups == null ? new UnknownPartitioning(0) : keyGroups.partitioning();
  }

  /** Plans the tasks of all rows, or of a runtime filter, as JSON. */
  synchronized InputPartition[] partitions(String filter) {
    ScanRequest request = filter == null ? scan.request() : scan.request().filtered(filter);
    if (keyColumns == null) {
      lastTasks = filter == null ? allTasks() : planRead(request);
      return lastTasks.partitions();
    }
    KeyGroups filtered = filter == null ? keyGroups() : loadKeyGroups(request, keyColumns);
    if (filtered == null || !filtered.columns().equals(keyColumns)) {
      throw new IllegalStateException("[LANCE_STORAGE] the zone maps of the analysis "
          + "cannot be read again\n  hint: try again, or set "
          + SQLConf.V2_BUCKETING_ENABLED().key()
          + " to false");
    }
    return filtered.withKeys(filter == null ? allTasks() : planRead(filtered.with(request)));
  }

  /** Readers of the planned tasks. */
  synchronized PartitionReaderFactory readers() {
    return (lastTasks == null ? allTasks() : lastTasks).readers();
  }

  private PythonRead allTasks() {
    if (allTasks == null) {
      allTasks = planRead(keyGroups() == null ? scan.request() : keyGroups.with(scan.request()));
    }
    return allTasks;
  }

  private KeyGroups keyGroups() {
    if (keyGroups == null && keyColumns != null) {
      keyGroups = loadKeyGroups(scan.request(), keyColumns);
    }
    return keyGroups;
  }

  private KeyGroups loadKeyGroups(ScanRequest request, Collection<String> columns) {
    return KeyGroups.of(request, scan.readSchema(), columns);
  }

  private PythonRead planRead(ScanRequest request) {
    return PythonRead.plan(wholeFragments ? request.withWholeFragments() : request,
        scan.readSchema(), scan.readsBatches() ? LanceScan.columnar() : null);
  }
}
