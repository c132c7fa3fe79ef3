package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** An expression that replaces another one during analysis, and is never evaluated. */
abstract class Placeholder extends Expression {
  private final Expression child;

  Placeholder(Expression child) { this.child = child; }

  final Expression child() { return child; }

  /** This placeholder with another expression. */
  abstract Placeholder withChild(Expression other);

  @Override public Seq<Expression> children() {
    return Seqs.of(child);
  }

  @Override public Expression withNewChildrenInternal(IndexedSeq<Expression> children) {
    return withChild(children.head());
  }

  @Override public boolean nullable() { return child.nullable(); }

  @Override public Object eval(InternalRow row) { throw new UnsupportedOperationException(sql()); }

  @Override public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    throw new UnsupportedOperationException(sql());
  }

  @Override public int productArity() { return 1; }

  @Override public Object productElement(int number) { return child; }

  @Override public boolean canEqual(Object other) { return other instanceof Placeholder; }

  @Override public boolean equals(Object other) {
    return other instanceof Placeholder placeholder && placeholder.getClass() == getClass()
        && placeholder.child.equals(child);
  }

  @Override public int hashCode() { return child.hashCode(); }
}
