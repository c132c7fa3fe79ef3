package org.pysparklance.compat;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.function.UnaryOperator;
import scala.Option;
import scala.Product;

/** Creates plans and expressions whose constructors differ between releases of Spark. */
public final class PlanParts {
  private PlanParts() {}

  /** The constructor arguments of a plan after a replacement; null if nothing changed. */
  public static Object[] changed(Product whole, UnaryOperator<Object> change) {
    Object[] parts = of(whole);
    boolean isChanged = false;
    for (int i = 0; i < parts.length; i++) {
      Object other = change.apply(parts[i]);
      isChanged |= !Objects.equals(other, parts[i]);
      parts[i] = other;
    }
    return isChanged ? parts : null;
  }

  public static Object[] of(Product whole) {
    Object[] parts = new Object[whole.productArity()];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = whole.productElement(i);
    }
    return parts;
  }

  /** Whether a whole has a part of this name, in this release of Spark, and it is true. */
  public static boolean isSet(Product whole, String name) {
    for (int i = 0; i < whole.productArity(); i++) {
      if (whole.productElementName(i).equals(name)) {
        return Boolean.TRUE.equals(whole.productElement(i));
      }
    }
    return false;
  }

  /**
   * A whole of its first parts. Parts that only some releases have come last: they are left out, or
   * empty if none is given.
   */
  @SuppressWarnings("unchecked")
  public static <T> T make(Class<T> kind, Object... parts) {
    Constructor<?> constructor = kind.getConstructors()[0];
    int count = constructor.getParameterCount();
    List<Object> all =
        new ArrayList<>(Arrays.asList(parts).subList(0, Math.min(parts.length, count)));
    while (all.size() < count) {
      all.add(Option.empty());
    }
    try {
      return (T) constructor.newInstance(all.toArray());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }
}
