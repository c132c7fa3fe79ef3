package org.pysparklance.python;

import java.util.List;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The rows of a version that a scan reads; equal requests read the same.
 *
 * @param options the options of the table
 * @param root the root of the table, or branch; null, as the version, for the newest version
 * @param base the stamp of the version, which detects a replaced table; may be null
 * @param filter a condition as JSON; null for all rows
 * @param limit the number of rows; null for all
 * @param top the order and the number of its first rows, as JSON; null for all
 * @param keyColumns the columns of which each task has one value; null for any tasks
 * @param keyTasks a digest of the tasks whose keys were reported to Spark; null if none were
 * @param wholeFragments whether each fragment is read by one task
 */
public record ScanRequest(CaseInsensitiveStringMap options, String root, Long version, String base,
    String filter, Integer limit, String top, List<String> keyColumns, String keyTasks,
    boolean wholeFragments) {
  /** A table, of which no version is chosen. */
  public static ScanRequest of(CaseInsensitiveStringMap options) {
    return new ScanRequest(options, null, null, null, null, null, null, null, null, false);
  }

  /** All rows of a version. */
  public static ScanRequest of(CaseInsensitiveStringMap options, Description table) {
    return new ScanRequest(options, table.root(), Long.parseLong(table.version()), table.base(),
        null, null, null, null, null, false);
  }

  public ScanRequest filtered(String condition) {
    return new ScanRequest(
        options, root, version, base, condition, limit, top, keyColumns, keyTasks, wholeFragments);
  }

  public ScanRequest limited(Integer rows, String order) {
    return new ScanRequest(
        options, root, version, base, filter, rows, order, keyColumns, keyTasks, wholeFragments);
  }

  /** With tasks by key. */
  public ScanRequest byKey(List<String> columns, String tasks) {
    return new ScanRequest(
        options, root, version, base, filter, limit, top, columns, tasks, wholeFragments);
  }

  /** With each fragment in one task. */
  public ScanRequest withWholeFragments() {
    return new ScanRequest(
        options, root, version, base, filter, limit, top, keyColumns, keyTasks, true);
  }
}
