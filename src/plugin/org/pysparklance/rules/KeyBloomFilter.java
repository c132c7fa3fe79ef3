package org.pysparklance.rules;

import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.BloomFilterAggregate;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.plans.logical.statsEstimation.EstimationUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.pysparklance.compat.PlanArguments;
import org.pysparklance.read.LanceScan;
import scala.collection.immutable.Seq;
import scala.math.BigInt;

/**
 * Filters the rows of a large table that is changed by a Bloom filter of the keys of the source,
 * so that rows without a match are neither shuffled nor sorted. Spark has such filters itself, but
 * only for selective conditions on the other side.
 */
final class KeyBloomFilter {
  /** The minimum rows of the table: below, building the filter costs more than it saves. */
  private static final String MIN_ROWS = "spark.sql.lance.keyFilterRows";
  private static final String DEFAULT_MIN_ROWS = "1000000";
  private static final long MIN_ITEMS = 100_000;
  private static final long MAX_ITEMS = 8_000_000;
  private static final long BITS_PER_ITEM = 8;
  /** Spark may estimate half of the rows that there are. */
  private static final long SIZE_MARGIN = 2;
  /** A source of more rows, in multiples of those of the table, has most of its keys. */
  private static final long MAX_SOURCE_RATIO = 4;
  /** Types of which equal values have equal bytes. */
  private static final Set<DataType> TYPES = Set.of(DataTypes.StringType, DataTypes.BinaryType,
      DataTypes.DateType, DataTypes.TimestampType, DataTypes.TimestampNTZType);

  private KeyBloomFilter() {}

  /** The side with the filter; null if it is not worth its cost, or no key has such a type. */
  static LogicalPlan inject(LogicalPlan side, Seq<Expression> keys, LogicalPlan other,
      Seq<Expression> otherKeys, SQLConf conf) {
    int[] ordinals = IntStream.range(0, keys.size())
        .filter(i -> isHashable(keys.apply(i).dataType())).toArray();
    long items = ordinals.length == 0 || !conf.runtimeFilterBloomFilterEnabled() ? 0
        : estimateItems(InjectIndexKeyFilter.findScan(side), keys, other, conf);
    if (items == 0) {
      return null;
    }
    Expression filter = new BloomFilterAggregate(hash(otherKeys, ordinals), Literal.create(items,
        DataTypes.LongType), Literal.create(BITS_PER_ITEM * items, DataTypes.LongType))
        .toAggregateExpression();
    Alias alias = Aliases.of(filter, "keys");
    Seq<Expression> noExpressions = Seqs.of();
    LogicalPlan aggregate =
        PlanArguments.instantiate(Aggregate.class, noExpressions, Seqs.of(alias),
        InjectIndexKeyFilter.repartition(other, otherKeys));
    Expression bloomFilter =
        PlanArguments.instantiate(ScalarSubquery.class, aggregate, noExpressions,
        NamedExpression$.MODULE$.newExprId(), noExpressions);
    return new Filter(new BloomFilterMightContain(bloomFilter, hash(keys, ordinals)), side);
  }

  private static boolean isHashable(DataType type) {
    return type instanceof IntegralType || type instanceof DecimalType || TYPES.contains(type);
  }

  private static Expression hash(Seq<Expression> keys, int[] ordinals) {
    List<Expression> columns =
        IntStream.of(ordinals).mapToObj(keys::apply).collect(Collectors.toList());
    return new XxHash64(Seqs.from(columns));
  }

  /** The size of the filter; 0 if there should be none. An index looks up few keys. */
  private static long estimateItems(LanceScan scan, Seq<Expression> keys, LogicalPlan source,
      SQLConf conf) {
    long rows = scan.table().rows();
    if (rows < Long.parseLong(conf.getConfString(MIN_ROWS, DEFAULT_MIN_ROWS))) {
      return 0;
    }
    int maxKeys = scan.prunableColumns().map(one -> one.fieldNames()[0]).filter(
        name -> keys.exists(key -> key.references().exists(one -> one.name().equals(name))))
        .mapToInt(scan::maxKeys).max().orElse(0);
    if (InjectIndexKeyFilter.hasUnknownSize(source, conf)) {
      return maxKeys > 0 ? 0 : MAX_ITEMS / SIZE_MARGIN;
    }
    Statistics statistics = source.stats();
    BigInt count = statistics.rowCount().isDefined() ? (BigInt) statistics.rowCount().get()
        : statistics.sizeInBytes().$div(EstimationUtils.getSizePerRow(source.output(),
            statistics.attributeStats()));
    // More keys than are looked up would leave the scan without a filter.
    long maxLookups = statistics.rowCount().isDefined() ? maxKeys : maxKeys / SIZE_MARGIN;
    boolean isLookedUp = maxKeys > 0 && count.$less$eq(BigInt.apply(maxLookups))
        && statistics.sizeInBytes().$less$eq(BigInt.apply(InjectIndexKeyFilter.MAX_BYTES));
    return isLookedUp || count.$greater(BigInt.apply(MAX_SOURCE_RATIO * rows)) ? 0
        : count.$times(BigInt.apply(SIZE_MARGIN)).max(BigInt.apply(MIN_ITEMS))
            .min(BigInt.apply(MAX_ITEMS)).toLong();
  }
}
