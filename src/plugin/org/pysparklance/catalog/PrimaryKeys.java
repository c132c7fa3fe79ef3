package org.pysparklance.catalog;

import java.util.*;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.catalog.constraints.PrimaryKey;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.types.*;
import org.pysparklance.python.Description;

/**
 * The primary key, which is not enforced: the only constraint of Spark that the fields of a table
 * store. Its name is not stored.
 */
public final class PrimaryKeys {
  /** Metadata key of a new column: its position in the primary key, from 1 on. */
  private static final String POSITION = "lance.primary_key";

  private PrimaryKeys() {}

  /** The columns of a new table, with their positions in its key. */
  public static StructType withKeyPositions(StructType columns, List<Constraint> constraints) {
    StructField[] fields = columns.fields().clone();
    for (Constraint one : constraints) {
      long position = 0;
      for (String name : columnsOf(one)) {
        int index = indexOf(columns, name);
        Metadata metadata = new MetadataBuilder().withMetadata(fields[index].metadata())
            .putLong(POSITION, ++position).build();
        StructField field = fields[index];
        fields[index] = new StructField(field.name(), field.dataType(), field.nullable(), metadata);
      }
    }
    return new StructType(fields);
  }

  private static int indexOf(StructType columns, String name) {
    List<String> names = List.of(columns.fieldNames());
    int exact = names.indexOf(name);
    for (int i = 0; exact < 0 && i < names.size(); i++) {
      exact = names.get(i).equalsIgnoreCase(name) ? i : exact;
    }
    if (exact < 0) {
      throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the primary key names "
          + name + ", which is no column\n  hint: the columns are " + String.join(", ", names));
    }
    return exact;
  }

  /** Whether a change adds a constraint. By its name, as Spark 4.0 lacks the class. */
  public static boolean isAddition(TableChange change) {
    return change.getClass().getSimpleName().equals("AddConstraint");
  }

  /** The columns of the key that a change adds. */
  static List<String> columnsOf(TableChange change) {
    return columnsOf(((TableChange.AddConstraint) change).constraint());
  }

  /** The names of the columns of a key, with dots for fields of structs. */
  private static List<String> columnsOf(Constraint constraint) {
    List<String> names = new ArrayList<>();
    for (NamedReference column : ((PrimaryKey) constraint).columns()) {
      names.add(String.join(".", column.fieldNames()));
    }
    return names;
  }

  /** The constraints of a table with the key of these columns; none without columns. */
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

  /** Refuse a key for an existing table that is only registered: it would be ignored. */
  public static void checkSame(Description existing, List<Constraint> constraints) {
    for (Constraint one : constraints) {
      if (!columnsOf(one).equals(existing.primaryKey())) {
        throw new UnsupportedOperationException("[LANCE_INVALID_INPUT] the table already exists, "
            + "without this primary key\n  at: " + existing.root()
            + "\n  hint: leave out PRIMARY KEY, then ALTER TABLE … ADD CONSTRAINT");
      }
    }
  }

  /** Refuse constraints of other tables, which Spark's own catalog would silently drop. */
  public static void refuseForeignConstraints(boolean hasConstraints, Object name) {
    if (hasConstraints) {
      throw new UnsupportedOperationException("[LANCE_UNSUPPORTED_FEATURE] constraints of " + name
          + ", which is no Lance table\n  hint: the catalog keeps the primary key of Lance tables");
    }
  }
}
