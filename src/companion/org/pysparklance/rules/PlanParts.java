package org.pysparklance.rules;

import java.util.Objects;
import java.util.function.UnaryOperator;
import scala.Product;

/** Plans and their expressions, whose constructors differ from one release of Spark to the next. */
final class PlanParts {
  private PlanParts() {}

  /** The parts of a plan, some of them changed; null where none is. */
  static Object[] changed(Product whole, UnaryOperator<Object> change) {
    Object[] parts = of(whole);
    boolean isChanged = false;
    for (int i = 0; i < parts.length; i++) {
      Object other = change.apply(parts[i]);
      isChanged |= !Objects.equals(other, parts[i]);
      parts[i] = other;
    }
    return isChanged ? parts : null;
  }

  static Object[] of(Product whole) {
    Object[] parts = new Object[whole.productArity()];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = whole.productElement(i);
    }
    return parts;
  }
}
