package org.pysparklance.write;

import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.python.Description;
import org.pysparklance.python.TableCreation;

/** The table of a write. */
public interface WriteTarget {
  String name();

  CaseInsensitiveStringMap options();

  /** The version that it shows; null if there is none yet. */
  Description loadDescription();

  /** The table that a write creates; null if a write may also find one. */
  TableCreation creation();

  /** The Spark columns of a version. */
  StructType read(Description found);

  /** Makes the next scan see the newest version. */
  void forgetVersion();

  /** Makes the next scan, and cached relations, see the version that a write committed. */
  void onCommitted();
}
