package org.pysparklance.rules;

import java.util.List;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Creates Scala's sequences, which plans and expressions have for their children. */
final class Seqs {
  private Seqs() {}

  static <T> Seq<T> of() { return from(List.of()); }

  static <T> Seq<T> of(T value) { return from(List.of(value)); }

  static <T> Seq<T> from(List<T> values) { return CollectionConverters.asScala(values).toSeq(); }
}
