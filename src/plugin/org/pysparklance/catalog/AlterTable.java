package org.pysparklance.catalog;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.concurrent.Callable;
import org.apache.spark.sql.connector.catalog.ColumnDefaultValue;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;
import org.pysparklance.python.NamedRequest;
import org.pysparklance.python.Python;
import org.slf4j.LoggerFactory;

/** ALTER TABLE: converts the changes that Spark parsed to JSON for Python. */
public final class AlterTable {
  private AlterTable() {}

  public static void run(NamedRequest table, TableChange... changes) {
    ArrayNode all = Python.JSON.createArrayNode();
    for (TableChange change : changes) {
      ObjectNode one = all.addObject().put("kind", change.getClass().getSimpleName());
      if (change instanceof TableChange.ColumnChange column) {
        one.set("column", Python.JSON.valueToTree(column.fieldNames()));
      }
      if (change instanceof TableChange.AddColumn added) {
        one.put("type", added.dataType().json()).put("nullable", added.isNullable())
            .put("comment", added.comment()).put("placed", added.position() != null);
        setDefault(one, added.defaultValue());
      } else if (change instanceof TableChange.RenameColumn renamed) {
        one.put("name", renamed.newName());
      } else if (change instanceof TableChange.DeleteColumn dropped) {
        one.put("ifExists", dropped.ifExists());
      } else if (change instanceof TableChange.UpdateColumnType changed) {
        one.put("type", changed.newDataType().json());
      } else if (change instanceof TableChange.UpdateColumnNullability changed) {
        one.put("nullable", changed.nullable());
      } else if (change instanceof TableChange.UpdateColumnComment changed) {
        one.put("comment", changed.newComment());
      } else if (change instanceof TableChange.UpdateColumnDefaultValue changed) {
        one.put("sql", changed.newDefaultValue());
      } else if (PrimaryKeys.isAddition(change)) {
        one.set("columns", Python.JSON.valueToTree(PrimaryKeys.columnsOf(change)));
      } else if (change instanceof TableChange.ClusterBy by) {
        one.set("columns", Python.JSON.valueToTree(
            ClusterColumns.namesOf(by.clusteringColumns())));
      } else if (change instanceof TableChange.SetProperty property) {
        one.put("name", property.property()).put("value", property.value());
      } else if (change instanceof TableChange.RemoveProperty property) {
        one.put("name", property.property()).putNull("value");
      }
    }
    Python.alter(table, all);
  }

  /** The table as it is now; null if it cannot be read, since the change is committed. */
  public static Table altered(Callable<Table> load) {
    try {
      return load.call();
    } catch (Exception error) {  // Spark does not look at what is returned
      LoggerFactory.getLogger(AlterTable.class).warn("an altered table cannot be read", error);
      return null;
    }
  }

  private static void setDefault(ObjectNode one, ColumnDefaultValue value) {
    if (value != null && value.getSql() != null) {
      one.put("sql", value.getSql());
      Literal<?> literal = value.getValue();
      Object held = literal == null ? null : literal.value();
      one.set("value", held instanceof UTF8String || held instanceof Decimal
          ? Python.JSON.valueToTree(held.toString()) : Python.JSON.valueToTree(held));
    }
  }
}
