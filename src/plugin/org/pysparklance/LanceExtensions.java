package org.pysparklance;

import org.apache.spark.SparkConf;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.pysparklance.python.ActiveQuery;
import org.pysparklance.python.Plugin;
import org.pysparklance.rules.SessionExtensions;
import scala.runtime.BoxedUnit;

/**
 * Spark runs this when it creates a session with this jar on its class path. It registers the two
 * catalogs, unless the user has set others, and the rules of sessions. In an untested release of
 * Spark, and if the plugin is off, it does nothing and loads no class that Spark may lack.
 */
public final class LanceExtensions implements SparkSessionExtensionsProvider {
  @Override public BoxedUnit apply(SparkSessionExtensions extensions) {
    SparkConf settings = ActiveQuery.context().conf();
    if (Plugin.isOn(settings.get(Plugin.SETTING, null))) {
      settings.setIfMissing("spark.sql.catalog.lance", "org.pysparklance.LanceCatalog");
      SessionExtensions.inject(extensions, LanceSessionCatalog::new);
    } else {
      Plugin.hideNotice();
    }
    return BoxedUnit.UNIT;
  }
}
