package org.pysparklance.catalog;

import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Utils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.pysparklance.compat.CatalogPlace;

/**
 * Replaces Spark's own catalog. The setting {@code spark.sql.catalog.spark_catalog} would do so,
 * but Spark stores it with each view and each function, which sessions without this jar could then
 * not use. So our catalog replaces Spark's in memory, and the setting is unchanged.
 */
public final class SessionCatalogs {
  private static final String SETTING = "spark.sql.catalog.spark_catalog";
  private static final String NONE = "builtin";

  private SessionCatalogs() {}

  /** A function that may throw an error of a missing table. */
  public interface Load<T> {
    T run() throws NoSuchTableException;
  }

  /** Replaces Spark's catalog, unless the user has set another one. */
  public static void put(DelegatingCatalogExtension ours, CatalogManager all, SQLConf settings) {
    if (settings.contains(SETTING)) {
      return;
    }
    try {
      CatalogPlace place = CatalogPlace.in(all);
      CatalogPlugin spark = place.get();
      if (spark.getClass() != ours.getClass()) {
        ours.initialize(spark.name(), CaseInsensitiveStringMap.empty());
        ours.setDelegateCatalog(spark);
        place.set(ours);
      }
    } catch (ReflectiveOperationException otherwiseInside) {
      settings.setConfString(SETTING, ours.getClass().getName());
    }
  }

  /** Makes Spark's catalog return tables from its metastore, whatever their source. */
  public static <T> T listed(Load<T> load) throws NoSuchTableException {
    return loaded(SessionCatalogs.class.getName(), load);
  }

  /** As {@code listed}, for a dropped table; returns whether there was one. */
  public static boolean dropped(Load<Boolean> load) {
    try {
      return listed(load);
    } catch (NoSuchTableException missing) {
      return false;
    }
  }

  /** Makes it load tables through their source, which it only does if it is not replaced. */
  public static <T> T opened(Load<T> load) throws NoSuchTableException {
    return loaded(NONE, load);
  }

  /** Whether Spark's catalog would load a table of its metastore through its source. */
  public static boolean isOpened(Table listed) {
    return listed instanceof V1Table table && table.catalogTable().provider().isDefined()
        && DataSourceV2Utils.getTableProvider(
            table.catalogTable().provider().get(), SQLConf.get()).isDefined();
  }

  private static <T> T loaded(String standsIn, Load<T> load) throws NoSuchTableException {
    SQLConf now = SQLConf.get();
    if (now.getConfString(SETTING, NONE).equals(NONE) == standsIn.equals(NONE)) {
      return load.run();
    }
    SQLConf settings = now.clone();
    settings.setConfString(SETTING, standsIn);
    return SQLConf.withExistingConf(settings, () -> {
      try {
        return load.run();
      } catch (NoSuchTableException missing) {
        throw SessionCatalogs.<RuntimeException>undeclared(missing);
      }
    });
  }

  /** Rethrows checked exceptions, which Scala functions do not declare. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E undeclared(Throwable error) throws E { throw (E) error; }
}
