package org.pysparklance.catalog;

import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/** A catalog all of whose tables are Lance tables, and in which a path is a name. */
public interface PathCatalog extends LanceProcedure.Catalog {
  /** The namespace of paths, where a name has to have one. */
  String ROOT = "main";

  /**
   * The catalog of this name, if there is one and it is one of these. The analyzer is asked, as
   * Spark's CatalogManager is a class in 4.1 and an interface later: no compiled call suits both.
   */
  static Optional<PathCatalog> find(SparkSession session, String name) {
    var parts = CollectionConverters.asScala(List.of(name)).toSeq();
    var found = session.sessionState().analyzer().CatalogAndNamespace().unapply(parts).get();
    // Where no catalog has this name, it is a namespace of the current one.
    return found._2().isEmpty() && found._1() instanceof PathCatalog own
        ? Optional.of(own) : Optional.empty();
  }
}
