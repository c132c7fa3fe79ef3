package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;

/**
 * The condition of a deferred command. It is unresolved until {@link BlobAssignments} has rewritten
 * the command, since Spark checks the types of assigned values once everything is resolved.
 */
public final class DeferredCondition extends Placeholder {
  public DeferredCondition(Expression condition) { super(condition); }

  @Override public boolean resolved() { return false; }

  @Override public DataType dataType() { return child().dataType(); }

  @Override Placeholder withChild(Expression child) { return new DeferredCondition(child); }
}
