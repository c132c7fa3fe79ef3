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
public final class PlanArguments {
  private PlanArguments() {}

  /** The constructor arguments of a plan after a replacement; null if nothing changed. */
  public static Object[] replace(Product plan, UnaryOperator<Object> replacement) {
    Object[] arguments = of(plan);
    boolean isChanged = false;
    for (int i = 0; i < arguments.length; i++) {
      Object replaced = replacement.apply(arguments[i]);
      isChanged |= !Objects.equals(replaced, arguments[i]);
      arguments[i] = replaced;
    }
    return isChanged ? arguments : null;
  }

  public static Object[] of(Product plan) {
    Object[] arguments = new Object[plan.productArity()];
    for (int i = 0; i < arguments.length; i++) {
      arguments[i] = plan.productElement(i);
    }
    return arguments;
  }

  /** Whether a plan has an argument of this name, in this release of Spark, and it is true. */
  public static boolean isTrue(Product plan, String name) {
    for (int i = 0; i < plan.productArity(); i++) {
      if (plan.productElementName(i).equals(name)) {
        return Boolean.TRUE.equals(plan.productElement(i));
      }
    }
    return false;
  }

  /**
   * An instance of its first arguments. Arguments that only some releases have are the last: they
   * are omitted, or empty by default.
   */
  @SuppressWarnings("unchecked")
  public static <T> T instantiate(Class<T> type, Object... arguments) {
    Constructor<?> constructor = type.getConstructors()[0];
    int count = constructor.getParameterCount();
    List<Object> parameters =
        new ArrayList<>(Arrays.asList(arguments).subList(0, Math.min(arguments.length, count)));
    while (parameters.size() < count) {
      parameters.add(Option.empty());
    }
    try {
      return (T) constructor.newInstance(parameters.toArray());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }
}
