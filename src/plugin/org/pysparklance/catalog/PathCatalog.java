package org.pysparklance.catalog;

import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/** A catalog that only has Lance tables, in which a path is a name. */
public interface PathCatalog extends LanceProcedure.Catalog {
  /** The namespace of paths in names that require one. */
  String ROOT = "main";

  /**
   * The catalog of this name, if it is a PathCatalog. This uses the analyzer, as Spark's
   * CatalogManager is a class in 4.1 and an interface later: no compiled call links to both.
   */
  static Optional<PathCatalog> find(SparkSession session, String name) {
    var parts = CollectionConverters.asScala(List.of(name)).toSeq();
    var found = session.sessionState().analyzer().CatalogAndNamespace().unapply(parts).get();
    // Without a catalog of this name, it is a namespace of the current one.
    return found._2().isEmpty() && found._1() instanceof PathCatalog catalog
        ? Optional.of(catalog) : Optional.empty();
  }
}
