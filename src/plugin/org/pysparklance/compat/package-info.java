/**
 * What depends on Spark's internals, so that a new release of Spark is checked here first.
 * Reflection, stack walks, private fields, strategies and physical plans are in this package only;
 * {@code tests/architecture/test_java_wall.py} has the rule. Each class, what it is for, and what
 * happens if Spark no longer has what it uses:
 *
 * <ul>
 * <li>{@code CachedPlans}: the plans in Spark's cache, by a private method. Cached relations do not
 *     follow writes; a warning is logged.
 * <li>{@code CallStack}: two stack walks. {@code saveAsTable} without a format is refused, a
 *     stream cannot create its table, and errors of missing tables have no hint; tests fail.
 * <li>{@code SessionCatalogField}: Spark's own catalog, in a private field. Without it, the setting of
 *     the catalog is used, which Spark stores with views and functions.
 * <li>{@code CommandStrategy}: a strategy, and the physical plan of REFRESH TABLE. ANALYZE fails.
 * <li>{@code DelegatingParser}: Spark's parser, whose methods differ by release. A method that a
 *     later release adds is not passed on to the parser of another extension.
 * <li>{@code PlanArguments}: plans with constructors of several releases, by reflection. Statements
 *     that need such a plan fail.
 * <li>{@code Releases}: classes that older releases lack. Statements that need one are refused.
 * <li>{@code RunningSession}: rules and the parser of a running session, in private fields.
 *     {@code enable} in a running session lacks the features that the logged warning names.
 * </ul>
 */
package org.pysparklance.compat;
