package org.pysparklance.compat;

import java.lang.reflect.Field;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;

/** Spark's own catalog in the manager of a session, which only its setting would replace. */
public final class SessionCatalogField {
  /** The field of the manager that is used unless the setting names a catalog. */
  private static final String FIELD = "defaultSessionCatalog";

  private final Field field;
  private final CatalogManager manager;

  private SessionCatalogField(Field field, CatalogManager manager) {
    this.field = field;
    this.manager = manager;
  }

  public static SessionCatalogField find(CatalogManager manager) throws NoSuchFieldException {
    for (Class<?> type = manager.getClass(); type != null; type = type.getSuperclass()) {
      for (Field field : type.getDeclaredFields()) {
        if (field.getName().endsWith(FIELD)) {
          field.setAccessible(true);
          return new SessionCatalogField(field, manager);
        }
      }
    }
    throw new NoSuchFieldException(FIELD);
  }

  public CatalogPlugin get() throws IllegalAccessException {
    return (CatalogPlugin) field.get(manager);
  }

  public void set(CatalogPlugin catalog) throws IllegalAccessException {
    field.set(manager, catalog);
  }
}
