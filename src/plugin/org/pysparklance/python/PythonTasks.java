package org.pysparklance.python;

import org.apache.spark.JobArtifactSet;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonUtils$;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.execution.datasources.v2.python.*;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.pysparklance.compat.PlanArguments;
import scala.Option;

/** Creates the classes of Spark whose tasks run functions in Python workers. */
final class PythonTasks {
  private static final String PYTHON = "spark.pyspark.python";
  private static final String LOGGING = "spark.sql.pyspark.worker.logging.enabled";

  /** Cached, since Spark starts Python for its version to create one. */
  private static PythonFunction driverFunction;

  private PythonTasks() {}

  /** The Python of workers and its environment; the function of a task is another one. */
  static UserDefinedPythonDataSource source() {
    PythonFunction driver = driverFunction();
    SparkContext spark = ActiveQuery.context();
    String python = spark.conf().get(PYTHON, System.getenv("PYSPARK_PYTHON"));
    // Spark uses the driver's Python, which may be missing on other machines.
    boolean isSame = spark.isLocal() || python == null || python.equals(driver.pythonExec());
    return new UserDefinedPythonDataSource(isSame ? driver : new SimplePythonFunction(new byte[0],
        driver.envVars(), driver.pythonIncludes(), python, driver.pythonVer(),
        driver.broadcastVars(), driver.accumulator()));
  }

  private static synchronized PythonFunction driverFunction() {
    if (driverFunction == null) {
      driverFunction = PythonUtils$.MODULE$.createPythonFunction(new byte[0]);
    }
    return driverFunction;
  }

  /** Readers of partitions by a pickled function that yields rows. */
  static PartitionReaderFactory readers(byte[] function, StructType rows) {
    return create(PythonPartitionReaderFactory.class, function, rows);
  }

  /** Writers by a pickled function that takes rows. */
  static DataWriterFactory writers(byte[] function, StructType rows) {
    return create(PythonBatchWriterFactory.class, function, rows);
  }

  /** Spark 4.0 has no logs of workers by session, and so one parameter less. */
  private static <T> T create(Class<T> type, byte[] function, StructType rows) {
    Option<String> artifacts = JobArtifactSet.getCurrentJobArtifactState().map(one -> one.uuid());
    return PlanArguments.instantiate(type, source(), function, rows, artifacts, session());
  }

  private static Option<String> session() {
    boolean hasLogs = SQLConf.get().getConfString(LOGGING, "false").equals("true");
    return hasLogs ? Option.apply(SparkSession.active().sessionUUID()) : Option.empty();
  }
}
