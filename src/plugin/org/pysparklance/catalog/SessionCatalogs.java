package org.pysparklance.catalog;

import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Utils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.compat.SessionCatalogField;
import org.pysparklance.python.LanceException;

/**
 * Replaces Spark's own catalog. The setting {@code spark.sql.catalog.spark_catalog} would do so,
 * but Spark stores it with each view and each function, which sessions without this jar could then
 * not use. So our catalog replaces Spark's in memory, and the setting is unchanged.
 */
public final class SessionCatalogs {
  private static final String SETTING = "spark.sql.catalog.spark_catalog";
  private static final String BUILTIN = "builtin";

  private SessionCatalogs() {}

  /** A function that may throw an error of a missing table. */
  public interface Load<T> {
    T run() throws NoSuchTableException;
  }

  /** Replaces Spark's catalog, unless the user has set another one. */
  public static void install(DelegatingCatalogExtension catalog, CatalogManager manager,
      SQLConf settings) {
    if (settings.contains(SETTING)) {
      return;
    }
    try {
      SessionCatalogField catalogField = SessionCatalogField.find(manager);
      CatalogPlugin sparkCatalog = catalogField.get();
      if (sparkCatalog.getClass() != catalog.getClass()) {
        catalog.initialize(sparkCatalog.name(), CaseInsensitiveStringMap.empty());
        catalog.setDelegateCatalog(sparkCatalog);
        catalogField.set(catalog);
      }
    } catch (ReflectiveOperationException inaccessible) {
      settings.setConfString(SETTING, catalog.getClass().getName());
    }
  }

  /** Makes Spark's catalog return tables from its metastore, whatever their source. */
  public static <T> T loadFromMetastore(Load<T> load) throws NoSuchTableException {
    return loadWith(SessionCatalogs.class.getName(), load);
  }

  /** As {@code loadFromMetastore}, for a dropped table; returns whether there was one. */
  public static boolean dropIfExists(Load<Boolean> load) {
    try {
      return loadFromMetastore(load);
    } catch (NoSuchTableException missing) {
      return false;
    }
  }

  /** Makes it load tables through their source, which it only does if it is not replaced. */
  public static <T> T loadFromSource(Load<T> load) throws NoSuchTableException {
    return loadWith(BUILTIN, load);
  }

  /** Whether Spark's catalog would load a table of its metastore through its source. */
  public static boolean hasSource(Table listing) {
    return listing instanceof V1Table table && table.catalogTable().provider().isDefined()
        && DataSourceV2Utils.getTableProvider(
            table.catalogTable().provider().get(), SQLConf.get()).isDefined();
  }

  private static <T> T loadWith(String catalogName, Load<T> load) throws NoSuchTableException {
    SQLConf current = SQLConf.get();
    if (current.getConfString(SETTING, BUILTIN).equals(BUILTIN) == catalogName.equals(BUILTIN)) {
      return load.run();
    }
    SQLConf settings = current.clone();
    settings.setConfString(SETTING, catalogName);
    return SQLConf.withExistingConf(settings, () -> {
      try {
        return load.run();
      } catch (NoSuchTableException missing) {
        throw LanceException.rethrow(missing);
      }
    });
  }
}
