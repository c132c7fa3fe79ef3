package org.apache.spark.sql.connector.catalog;

import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public interface Changelog {
  String name();

  Column[] columns();

  boolean containsCarryoverRows();

  boolean containsIntermediateChanges();

  boolean representsUpdateAsDeleteAndInsert();

  ScanBuilder newScanBuilder(CaseInsensitiveStringMap options);
}
