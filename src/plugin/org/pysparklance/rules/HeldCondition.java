package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;

/**
 * The condition of a command, unresolved until {@link BlobAssignments} has looked at the command:
 * Spark checks the types of assigned values as soon as all of it is resolved.
 */
public final class HeldCondition extends Placeholder {
  public HeldCondition(Expression condition) { super(condition); }

  @Override public boolean resolved() { return false; }

  @Override public DataType dataType() { return child().dataType(); }

  @Override Placeholder around(Expression other) { return new HeldCondition(other); }
}
