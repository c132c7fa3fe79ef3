package org.pysparklance.rules;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import scala.Option;
import scala.collection.immutable.Seq;

/** Creates aliases with the default arguments of Scala. */
final class Aliases {
  private Aliases() {}

  static Alias of(Expression child, String name) {
    return of(child, name, NamedExpression$.MODULE$.newExprId(), Seqs.of());
  }

  static Alias of(Expression child, String name, ExprId id, Seq<String> qualifier) {
    return new Alias(child, name, id, qualifier, Option.empty(), Seqs.of());
  }
}
