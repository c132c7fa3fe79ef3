package org.pysparklance.write;

import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Description;

/** The table that a write changes, as the write sees it. */
public interface WriteTarget {
  String name();

  CaseInsensitiveStringMap options();

  /** The version that it shows; null when there is none yet. */
  Description described();

  /** The columns that Spark reads of a version. */
  StructType read(Description found);

  /** Makes the next scan see the newest version. */
  void forgetVersion();

  /** Makes the next scan, and what is cached, see the version that a write made. */
  void onCommitted();
}
