package org.pysparklance.compat;

import java.lang.reflect.Field;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;

/** Spark's own catalog in the manager of a session, which only its setting would replace. */
public final class CatalogPlace {
  /** The field of the manager that is used unless the setting names a catalog. */
  private static final String PLACE = "defaultSessionCatalog";

  private final Field field;
  private final CatalogManager manager;

  private CatalogPlace(Field field, CatalogManager manager) {
    this.field = field;
    this.manager = manager;
  }

  public static CatalogPlace in(CatalogManager manager) throws NoSuchFieldException {
    for (Class<?> one = manager.getClass(); one != null; one = one.getSuperclass()) {
      for (Field field : one.getDeclaredFields()) {
        if (field.getName().endsWith(PLACE)) {
          field.setAccessible(true);
          return new CatalogPlace(field, manager);
        }
      }
    }
    throw new NoSuchFieldException(PLACE);
  }

  public CatalogPlugin get() throws IllegalAccessException {
    return (CatalogPlugin) field.get(manager);
  }

  public void set(CatalogPlugin catalog) throws IllegalAccessException {
    field.set(manager, catalog);
  }
}
