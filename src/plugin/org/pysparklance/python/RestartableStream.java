package org.pysparklance.python;

import java.util.function.Function;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.LoggerFactory;

/**
 * A stream that outlives the credentials it started with. Spark's Python process of a stream has the
 * options of its start; if Hadoop's settings have changed since, a new process takes over before the
 * next call. Offsets come with every call, so a process knows nothing that is lost.
 */
class RestartableStream implements MicroBatchStream, AcceptsLatestSeenOffset {
  private final String title;
  private final CaseInsensitiveStringMap options;
  private final Function<CaseInsensitiveStringMap, MicroBatchStream> start;
  private CaseInsensitiveStringMap startOptions;
  private MicroBatchStream python;
  private boolean isStopped;

  private RestartableStream(String title, CaseInsensitiveStringMap options,
      CaseInsensitiveStringMap startOptions, MicroBatchStream python,
      Function<CaseInsensitiveStringMap, MicroBatchStream> start) {
    this.title = title;
    this.options = options;
    this.startOptions = startOptions;
    this.python = python;
    this.start = start;
  }

  /** @param start starts the process of a stream with these options */
  static MicroBatchStream of(String title, CaseInsensitiveStringMap options,
      Function<CaseInsensitiveStringMap, MicroBatchStream> start) {
    CaseInsensitiveStringMap startOptions = HadoopSettings.addTo(options);
    MicroBatchStream python = start.apply(startOptions);
    return python instanceof SupportsTriggerAvailableNow
        ? new Limited(title, options, startOptions, python, start)
        : new RestartableStream(title, options, startOptions, python, start);
  }

  /** Returns the stream with the current settings; starts a new process if they have changed. */
  protected final synchronized MicroBatchStream current() {
    CaseInsensitiveStringMap currentOptions = isStopped ? startOptions
        : HadoopSettings.addTo(options);
    if (!currentOptions.equals(startOptions)) {
      LoggerFactory.getLogger(RestartableStream.class)
          .info("the settings for the store of a stream have changed");
      MicroBatchStream previous = python;
      python = start.apply(currentOptions);
      startOptions = currentOptions;
      previous.stop();
      onRestarted(python);
    }
    return python;
  }

  protected void onRestarted(MicroBatchStream restarted) {}

  @Override public Offset initialOffset() { return current().initialOffset(); }

  @Override public Offset latestOffset() { return current().latestOffset(); }

  @Override public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return current().planInputPartitions(start, end);
  }

  @Override public PartitionReaderFactory createReaderFactory() {
    return current().createReaderFactory();
  }

  @Override public Offset deserializeOffset(String json) { return python.deserializeOffset(json); }

  @Override public void setLatestSeenOffset(Offset offset) {
    if (current() instanceof AcceptsLatestSeenOffset stream) {
      stream.setLatestSeenOffset(offset);
    }
  }

  @Override public void commit(Offset end) { current().commit(end); }

  @Override public synchronized void stop() {
    isStopped = true;
    python.stop();
  }

  /** What the progress of a query calls its source, and its errors. */
  @Override public String toString() { return "lance " + title; }

  /** A stream whose batches have limits, since Spark 4.2. */
  private static final class Limited extends RestartableStream
      implements SupportsTriggerAvailableNow {
    private boolean endsAtNewest;

    Limited(String title, CaseInsensitiveStringMap options, CaseInsensitiveStringMap startOptions,
        MicroBatchStream python, Function<CaseInsensitiveStringMap, MicroBatchStream> start) {
      super(title, options, startOptions, python, start);
    }

    @Override protected void onRestarted(MicroBatchStream restarted) {
      if (endsAtNewest && restarted instanceof SupportsTriggerAvailableNow limited) {
        limited.prepareForTriggerAvailableNow();
      }
    }

    @Override public void prepareForTriggerAvailableNow() {
      if (current() instanceof SupportsTriggerAvailableNow limited) {
        limited.prepareForTriggerAvailableNow();
      }
      endsAtNewest = true;
    }

    @Override public ReadLimit getDefaultReadLimit() {
      return current() instanceof SupportsAdmissionControl limited
          ? limited.getDefaultReadLimit() : ReadLimit.allAvailable();
    }

    /** A process that could not open the table has no limits, and raises the error. */
    @Override public Offset latestOffset(Offset start, ReadLimit limit) {
      MicroBatchStream python = current();
      return python instanceof SupportsAdmissionControl limited
          ? limited.latestOffset(start, limit) : python.latestOffset();
    }

    @Override public Offset reportLatestOffset() {
      return current() instanceof SupportsAdmissionControl limited
          ? limited.reportLatestOffset() : null;
    }
  }
}
