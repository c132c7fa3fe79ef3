package org.pysparklance.catalog;

/** A catalog all of whose tables are Lance tables, and in which a path is a name. */
public interface PathCatalog extends LanceProcedure.Catalog {
  /** The namespace of paths, where a name has to have one. */
  String ROOT = "main";
}
