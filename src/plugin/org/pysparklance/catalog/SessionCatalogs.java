package org.pysparklance.catalog;

import java.lang.reflect.Field;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Utils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What stands in for Spark's own catalog. By {@code spark.sql.catalog.spark_catalog} it would, but
 * Spark keeps that setting with each view and each function, and sessions without this jar could
 * not use them any more. So ours takes the place of Spark's, and the setting is left as it is.
 */
public final class SessionCatalogs {
  private static final String SETTING = "spark.sql.catalog.spark_catalog";
  private static final String NONE = "builtin";
  /** Of Spark's manager of catalogs: what counts while the setting names no other one. */
  private static final String PLACE = "defaultSessionCatalog";

  private SessionCatalogs() {}

  /** Work that may find no table. */
  public interface Load<T> {
    T run() throws NoSuchTableException;
  }

  /** Puts a catalog over Spark's; not where the user has said which one to take. */
  public static void put(DelegatingCatalogExtension ours, CatalogManager all, SQLConf settings) {
    if (settings.contains(SETTING)) {
      return;
    }
    try {
      Field place = placeIn(all.getClass());
      place.setAccessible(true);
      CatalogPlugin spark = (CatalogPlugin) place.get(all);
      if (spark.getClass() != ours.getClass()) {
        ours.initialize(spark.name(), CaseInsensitiveStringMap.empty());
        ours.setDelegateCatalog(spark);
        place.set(all, ours);
      }
    } catch (ReflectiveOperationException otherwiseInside) {
      settings.setConfString(SETTING, ours.getClass().getName());
    }
  }

  private static Field placeIn(Class<?> kind) throws NoSuchFieldException {
    for (Class<?> one = kind; one != null; one = one.getSuperclass()) {
      for (Field field : one.getDeclaredFields()) {
        if (field.getName().endsWith(PLACE)) {
          return field;
        }
      }
    }
    throw new NoSuchFieldException(PLACE);
  }

  /** Has Spark's catalog take tables as it has them in its list, whatever source they are of. */
  public static <T> T listed(Load<T> load) throws NoSuchTableException {
    return loaded(SessionCatalogs.class.getName(), load);
  }

  /** As {@code listed}, for a table that goes; whether there was one. */
  public static boolean dropped(Load<Boolean> load) {
    try {
      return listed(load);
    } catch (NoSuchTableException missing) {
      return false;
    }
  }

  /** Has it take them as their source gives them, which it asks only where no other stands in. */
  public static <T> T opened(Load<T> load) throws NoSuchTableException {
    return loaded(NONE, load);
  }

  /** Whether Spark's catalog would take a table of its list as its source gives it. */
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

  /** Scala's functions declare no errors. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E undeclared(Throwable error) throws E { throw (E) error; }
}
