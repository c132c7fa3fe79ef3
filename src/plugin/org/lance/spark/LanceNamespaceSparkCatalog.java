package org.lance.spark;

import org.pysparklance.LanceCatalog;

/** The name that lance-spark gives its catalog, for settings that were written for it. */
public class LanceNamespaceSparkCatalog extends LanceCatalog {}
