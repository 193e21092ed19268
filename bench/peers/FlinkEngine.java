package bench;

import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * W1, W2 and W3 on Flink's DataStream API, all in one JVM, written exactly once.
 *
 * <p>Set up after Flink's documentation (nightlies.apache.org/flink/flink-docs-stable/docs/):
 *
 * <ul>
 *   <li>connectors/datastream/kafka: EXACTLY_ONCE needs checkpoints and a transactional id prefix of its own; the
 *       transaction timeout is longer than a checkpoint and a restart together.
 *   <li>ops/state/state_backends: the hashmap backend is the fast one while state fits in memory.
 *   <li>dev/datastream/execution/execution_configuration: object reuse, since no function keeps or changes its input.
 *   <li>dev/datastream/fault-tolerance/serialization/types_serialization: POJOs, which avoid Kryo; only the fields
 *       that are needed go through the exchange.
 *   <li>dev/datastream/event-time/generating_watermarks: watermarks in the source, so that each partition has its own.
 * </ul>
 */
public final class FlinkEngine {
  private FlinkEngine() {}

  /** What the exchange of W2 and W3 carries. */
  public static class Priced {
    public String key;
    public long ts;
    public long price;
  }

  /** Count and sum of a key or a window. */
  public static class Sums {
    public long count;
    public long sum;
  }

  /** A record of the output. */
  public static class Result {
    public String key;
    public byte[] value;

    public Result() {}

    Result(String key, byte[] value) {
      this.key = key;
      this.value = value;
    }
  }

  private static final class ReadOrder extends AbstractDeserializationSchema<Order> {
    private transient ObjectReader reader;

    @Override
    public void open(InitializationContext context) {
      reader = Order.reader();
    }

    @Override
    public Order deserialize(byte[] message) throws IOException {
      return reader.readValue(message);
    }
  }

  private static final class WriteResult implements KafkaRecordSerializationSchema<Result> {
    private final String topic;

    WriteResult(String topic) {
      this.topic = topic;
    }

    @Override
    public ProducerRecord<byte[], byte[]> serialize(Result result, KafkaSinkContext context, Long timestamp) {
      return new ProducerRecord<>(topic, result.key.getBytes(StandardCharsets.UTF_8), result.value);
    }
  }

  private static final class SelectPaid extends RichFlatMapFunction<Order, Result> {
    private transient ObjectWriter writer;

    @Override
    public void open(OpenContext context) {
      writer = Order.writer(Order.Paid.class);
    }

    @Override
    public void flatMap(Order order, Collector<Result> out) {
      if ("paid".equals(order.status)) {
        out.collect(new Result(order.customer, Order.write(writer, Order.Paid.of(order))));
      }
    }
  }

  private static final class RunningTotals extends KeyedProcessFunction<String, Priced, Result> {
    private transient ValueState<Sums> state;
    private transient ObjectWriter writer;

    @Override
    public void open(OpenContext context) {
      state = getRuntimeContext().getState(new ValueStateDescriptor<>("sums", Sums.class));
      writer = Order.writer(Order.Total.class);
    }

    @Override
    public void processElement(Priced order, Context context, Collector<Result> out) throws IOException {
      Sums before = state.value();
      Sums sums = new Sums(); // a value on the heap must not be changed: a running checkpoint may still read it
      sums.count = 1 + (before == null ? 0 : before.count);
      sums.sum = order.price + (before == null ? 0 : before.sum);
      state.update(sums);
      Order.Total total = new Order.Total(order.key, sums.count, sums.sum, order.ts);
      out.collect(new Result(order.key, Order.write(writer, total)));
    }
  }

  private static final class AddPrices implements AggregateFunction<Priced, Sums, Sums> {
    @Override
    public Sums createAccumulator() {
      return new Sums();
    }

    @Override
    public Sums add(Priced order, Sums sums) {
      sums.count++;
      sums.sum += order.price;
      return sums;
    }

    @Override
    public Sums getResult(Sums sums) {
      return sums;
    }

    @Override
    public Sums merge(Sums one, Sums other) {
      one.count += other.count;
      one.sum += other.sum;
      return one;
    }
  }

  private static final class WriteWindow extends ProcessWindowFunction<Sums, Result, String, TimeWindow> {
    private transient ObjectWriter writer;

    @Override
    public void open(OpenContext context) {
      writer = Order.writer(Order.Window.class);
    }

    @Override
    public void process(String key, Context context, Iterable<Sums> windows, Collector<Result> out) {
      for (Sums sums : windows) {
        Order.Window window = new Order.Window(key, context.window().getStart(), sums.count, sums.sum);
        out.collect(new Result(key, Order.write(writer, window)));
      }
    }
  }

  private static Priced priced(String key, Order order) {
    Priced priced = new Priced();
    priced.key = key;
    priced.ts = order.ts;
    priced.price = order.price;
    return priced;
  }

  private static StreamExecutionEnvironment environment(Properties settings) {
    Configuration flink = new Configuration();
    flink.set(RestOptions.ADDRESS, "127.0.0.1");
    flink.set(RestOptions.BIND_ADDRESS, "127.0.0.1");
    flink.set(RestOptions.BIND_PORT, "0");
    flink.set(StateBackendOptions.STATE_BACKEND, "hashmap");
    flink.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, Path.of(settings.getProperty("state")).toUri().toString());
    flink.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(0)); // only RocksDB would use it
    int parallelism = Integer.parseInt(settings.getProperty("parallelism"));
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(parallelism, flink);
    environment.getConfig().enableObjectReuse();
    long interval = Long.parseLong(settings.getProperty("interval.ms"));
    environment.enableCheckpointing(interval, CheckpointingMode.EXACTLY_ONCE);
    return environment;
  }

  private static DataStream<Result> steps(DataStream<Order> orders, Properties settings) {
    switch (settings.getProperty("workload")) {
      case "W1":
        return orders.flatMap(new SelectPaid()).uid("paid");
      case "W2":
        return orders.map(order -> priced(order.customer, order)).returns(Priced.class).uid("priced")
            .keyBy(order -> order.key).process(new RunningTotals()).uid("totals");
      case "W3":
        Duration size = Duration.ofMillis(Long.parseLong(settings.getProperty("window.ms")));
        return orders.map(order -> priced(order.sku, order)).returns(Priced.class).uid("priced")
            .keyBy(order -> order.key).window(TumblingEventTimeWindows.of(size))
            .aggregate(new AddPrices(), new WriteWindow()).uid("windows");
      default:
        throw new IllegalArgumentException(settings.getProperty("workload"));
    }
  }

  public static void main(String[] arguments) throws Exception {
    Properties settings = Order.settings(arguments[0]);
    StreamExecutionEnvironment environment = environment(settings);
    KafkaSource<Order> source = KafkaSource.<Order>builder()
        .setBootstrapServers(settings.getProperty("bootstrap"))
        .setTopics(settings.getProperty("input"))
        .setGroupId(settings.getProperty("id"))
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setValueOnlyDeserializer(new ReadOrder())
        .setProperty("isolation.level", "read_committed")
        .setProperty("fetch.max.wait.ms", "20")
        .build();
    WatermarkStrategy<Order> watermarks = WatermarkStrategy.noWatermarks();
    if (settings.getProperty("workload").equals("W3")) {
      Duration lateness = Duration.ofMillis(Long.parseLong(settings.getProperty("lateness.ms")));
      watermarks = WatermarkStrategy.<Order>forBoundedOutOfOrderness(lateness)
          .withTimestampAssigner((order, timestamp) -> order.ts);
    }
    KafkaSink<Result> sink = KafkaSink.<Result>builder()
        .setBootstrapServers(settings.getProperty("bootstrap"))
        .setRecordSerializer(new WriteResult(settings.getProperty("output")))
        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .setTransactionalIdPrefix(settings.getProperty("id"))
        .setProperty("transaction.timeout.ms", "600000")
        .setProperty("batch.size", "131072")
        .setProperty("linger.ms", "5")
        .build();
    steps(environment.fromSource(source, watermarks, "orders").uid("orders"), settings).sinkTo(sink).uid("result");
    environment.execute("bench");
  }
}
