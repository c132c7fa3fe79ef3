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
import org.pysparklance.python.Python;
import org.pysparklance.python.TableRequest;
import org.slf4j.LoggerFactory;

/** ALTER TABLE: converts the changes that Spark parsed to JSON for Python. */
public final class AlterTable {
  private AlterTable() {}

  public static void run(TableRequest table, TableChange... changes) {
    ArrayNode changesJson = Python.JSON.createArrayNode();
    for (TableChange change : changes) {
      ObjectNode json = changesJson.addObject().put("kind", change.getClass().getSimpleName());
      if (change instanceof TableChange.ColumnChange column) {
        json.set("column", Python.JSON.valueToTree(column.fieldNames()));
      }
      if (change instanceof TableChange.AddColumn add) {
        json.put("type", add.dataType().json()).put("nullable", add.isNullable())
            .put("comment", add.comment()).put("placed", add.position() != null);
        setDefault(json, add.defaultValue());
      } else if (change instanceof TableChange.RenameColumn rename) {
        json.put("name", rename.newName());
      } else if (change instanceof TableChange.DeleteColumn drop) {
        json.put("ifExists", drop.ifExists());
      } else if (change instanceof TableChange.UpdateColumnType update) {
        json.put("type", update.newDataType().json());
      } else if (change instanceof TableChange.UpdateColumnNullability update) {
        json.put("nullable", update.nullable());
      } else if (change instanceof TableChange.UpdateColumnComment update) {
        json.put("comment", update.newComment());
      } else if (change instanceof TableChange.UpdateColumnDefaultValue update) {
        json.put("sql", update.newDefaultValue());
      } else if (PrimaryKeys.isAddition(change)) {
        json.set("columns", Python.JSON.valueToTree(PrimaryKeys.columnsOf(change)));
      } else if (change instanceof TableChange.ClusterBy clusterBy) {
        json.set("columns", Python.JSON.valueToTree(
            ClusteringColumns.namesOf(clusterBy.clusteringColumns())));
      } else if (change instanceof TableChange.SetProperty property) {
        json.put("name", property.property()).put("value", property.value());
      } else if (change instanceof TableChange.RemoveProperty property) {
        json.put("name", property.property()).putNull("value");
      }
    }
    Python.alter(table, changesJson);
  }

  /** The table as it is now; null if it cannot be read, since the change is committed. */
  public static Table loadAltered(Callable<Table> load) {
    try {
      return load.call();
    } catch (Exception error) {  // Spark ignores the return value
      LoggerFactory.getLogger(AlterTable.class).warn("an altered table cannot be read", error);
      return null;
    }
  }

  private static void setDefault(ObjectNode json, ColumnDefaultValue value) {
    if (value != null && value.getSql() != null) {
      json.put("sql", value.getSql());
      Literal<?> literal = value.getValue();
      Object content = literal == null ? null : literal.value();
      json.set("value", content instanceof UTF8String || content instanceof Decimal
          ? Python.JSON.valueToTree(content.toString()) : Python.JSON.valueToTree(content));
    }
  }
}
