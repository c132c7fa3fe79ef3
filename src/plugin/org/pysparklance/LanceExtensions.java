package org.pysparklance;

import org.apache.spark.SparkConf;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.pysparklance.python.Plugin;
import org.pysparklance.python.Running;
import org.pysparklance.rules.SessionExtensions;
import scala.runtime.BoxedUnit;

/**
 * Spark runs this when it makes a session with this jar on its class path; it gives it the two
 * catalogs, where the user has set no other, and repairs what Spark makes of hidden columns. In a
 * Spark that the plugin was not tested with, and where it is off, it does nothing, and loads no
 * class that such a Spark may lack.
 */
public final class LanceExtensions implements SparkSessionExtensionsProvider {
  @Override public BoxedUnit apply(SparkSessionExtensions extensions) {
    SparkConf settings = Running.context().conf();
    if (Plugin.isOn(settings.get(Plugin.SETTING, null))) {
      settings.setIfMissing("spark.sql.catalog.lance", "org.pysparklance.LanceCatalog");
      SessionExtensions.inject(extensions, LanceSessionCatalog::new);
    } else {
      Plugin.hideNotice();
    }
    return BoxedUnit.UNIT;
  }
}
