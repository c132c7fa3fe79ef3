package org.pysparklance.catalog;

import java.util.*;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.catalog.constraints.PrimaryKey;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.types.*;
import org.pysparklance.python.Description;

/**
 * The primary key, which no write enforces: of Spark's constraints the one that the fields of a
 * table say. Its name is not kept.
 */
public final class PrimaryKeys {
  /** In the metadata of a column that is to be made: its place in the key, from 1 on. */
  private static final String PLACE = "lance.primary_key";

  private PrimaryKeys() {}

  /** The columns of a new table, with what they are in its key. */
  public static StructType marked(StructType columns, Constraint[] constraints) {
    StructField[] fields = columns.fields().clone();
    for (Constraint one : constraints) {
      long place = 0;
      for (String name : columnsOf(one)) {
        int found = indexOf(columns, name);
        Metadata marked = new MetadataBuilder().withMetadata(fields[found].metadata())
            .putLong(PLACE, ++place).build();
        StructField old = fields[found];
        fields[found] = new StructField(old.name(), old.dataType(), old.nullable(), marked);
      }
    }
    return new StructType(fields);
  }

  private static int indexOf(StructType columns, String name) {
    List<String> names = List.of(columns.fieldNames());
    int exact = names.indexOf(name);
    for (int at = 0; exact < 0 && at < names.size(); at++) {
      exact = names.get(at).equalsIgnoreCase(name) ? at : exact;
    }
    if (exact < 0) {
      throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the primary key names "
          + name + ", which is no column\n  hint: the columns are " + String.join(", ", names));
    }
    return exact;
  }

  /** The names of the columns of a key, of structs with dots. */
  static List<String> columnsOf(Constraint constraint) {
    List<String> names = new ArrayList<>();
    for (NamedReference column : ((PrimaryKey) constraint).columns()) {
      names.add(String.join(".", column.fieldNames()));
    }
    return names;
  }

  /** What a table shows, which has the key of these columns; none of no columns. */
  static Constraint[] of(List<String> columns) {
    if (columns.isEmpty()) {
      return new Constraint[0];
    }
    NamedReference[] key = columns.stream()
        .map(name -> Expressions.column("`" + name.replace("`", "``") + "`"))
        .toArray(NamedReference[]::new);
    return new Constraint[] {Constraint.primaryKey("primary_key", key).enforced(false).rely(false)
        .validationStatus(Constraint.ValidationStatus.UNVALIDATED).build()};
  }

  /** A table that gets a name keeps its key; that of the statement would go nowhere. */
  public static void checkSame(Description there, Constraint[] constraints) {
    for (Constraint one : constraints) {
      if (!columnsOf(one).equals(there.primaryKey())) {
        throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] there is a table already, "
            + "without this primary key\n  at: " + there.root()
            + "\n  hint: leave out PRIMARY KEY, then ALTER TABLE … ADD CONSTRAINT");
      }
    }
  }

  /** Spark's own catalog would take constraints of other tables and forget them. */
  public static void refuseOfOthers(boolean areThere, Object name) {
    if (areThere) {
      throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] constraints of " + name
          + ", which is no Lance table\n  hint: the catalog keeps the primary key of Lance tables");
    }
  }
}
