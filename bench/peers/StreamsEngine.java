package bench;

import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * W1, W2 and W3 on Kafka Streams' DSL, exactly_once_v2, state in RocksDB with a changelog.
 *
 * <p>Set up after Kafka's documentation (kafka.apache.org/43/documentation/streams/):
 *
 * <ul>
 *   <li>developer-guide/config-streams: processing.guarantee, one thread for each core, commit.interval.ms.
 *   <li>developer-guide/memory-mgmt: without a record cache every update is emitted, as W2 demands.
 *   <li>developer-guide/dsl-api: EmitStrategy.onWindowClose, a grace period, and a repartition that carries only what
 *       the aggregation needs. Windows are retained longer than the default: without that, those that are open when
 *       event time jumps to the closing records never come out.
 * </ul>
 */
public final class StreamsEngine {
  private StreamsEngine() {}

  /** Count, sum, and the event time of the last order of a key or a window. */
  private record Sums(long count, long sum, long ts) {
    Sums add(long price, long at) {
      return new Sums(count + 1, sum + price, at);
    }

    byte[] bytes() {
      return ByteBuffer.allocate(24).putLong(count).putLong(sum).putLong(ts).array();
    }

    static Sums of(byte[] bytes) {
      ByteBuffer buffer = ByteBuffer.wrap(bytes);
      return new Sums(buffer.getLong(), buffer.getLong(), buffer.getLong());
    }
  }

  /** What the repartition of W3 carries. */
  private record Priced(long ts, long price) {
    byte[] bytes() {
      return ByteBuffer.allocate(16).putLong(ts).putLong(price).array();
    }

    static Priced of(byte[] bytes) {
      ByteBuffer buffer = ByteBuffer.wrap(bytes);
      return new Priced(buffer.getLong(), buffer.getLong());
    }
  }

  private static final Serde<Sums> SUMS = Serdes.serdeFrom(
      (topic, sums) -> sums == null ? null : sums.bytes(), (topic, bytes) -> bytes == null ? null : Sums.of(bytes));
  private static final Serde<Priced> PRICED =
      Serdes.serdeFrom((topic, order) -> order.bytes(), (topic, bytes) -> Priced.of(bytes));
  private static final Serde<String> STRING = Serdes.String();

  private static Serde<Order> orders() {
    ObjectReader reader = Order.reader();
    return Serdes.serdeFrom(
        (topic, order) -> {
          throw new UnsupportedOperationException("orders are only read");
        },
        (topic, bytes) -> {
          try {
            return reader.readValue(bytes);
          } catch (IOException error) {
            throw new UncheckedIOException(error);
          }
        });
  }

  private static StreamsConfig config(Properties settings) {
    Properties streams = new Properties();
    streams.put(StreamsConfig.APPLICATION_ID_CONFIG, settings.getProperty("id"));
    streams.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, settings.getProperty("bootstrap"));
    streams.put(StreamsConfig.STATE_DIR_CONFIG, settings.getProperty("state"));
    streams.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    streams.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, settings.getProperty("interval.ms"));
    streams.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, settings.getProperty("parallelism"));
    streams.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    streams.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
    streams.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
    streams.put(StreamsConfig.consumerPrefix(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG), 20);
    streams.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 131072);
    streams.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 5);
    return new StreamsConfig(streams);
  }

  private static void selectPaid(KStream<String, Order> orders, String output) {
    ObjectWriter writer = Order.writer(Order.Paid.class);
    orders.filter((key, order) -> "paid".equals(order.status))
        .mapValues(order -> Order.write(writer, Order.Paid.of(order)))
        .to(output, Produced.with(STRING, Serdes.ByteArray()));
  }

  private static void runningTotals(KStream<String, Order> orders, String output) {
    ObjectWriter writer = Order.writer(Order.Total.class);
    orders.groupByKey(Grouped.with(STRING, orders()))
        .aggregate(
            () -> new Sums(0, 0, 0),
            (customer, order, sums) -> sums.add(order.price, order.ts),
            Materialized.<String, Sums, KeyValueStore<Bytes, byte[]>>as("totals")
                .withKeySerde(STRING).withValueSerde(SUMS))
        .toStream()
        .mapValues((customer, sums) ->
            Order.write(writer, new Order.Total(customer, sums.count, sums.sum, sums.ts)))
        .to(output, Produced.with(STRING, Serdes.ByteArray()));
  }

  private static void windows(KStream<String, Order> orders, String output, Duration size, Duration grace) {
    ObjectWriter writer = Order.writer(Order.Window.class);
    orders.map((customer, order) -> KeyValue.pair(order.sku, new Priced(order.ts, order.price)))
        .groupByKey(Grouped.with("by-sku", STRING, PRICED))
        .windowedBy(TimeWindows.ofSizeAndGrace(size, grace))
        .emitStrategy(EmitStrategy.onWindowClose())
        .aggregate(
            () -> new Sums(0, 0, 0),
            (sku, order, sums) -> sums.add(order.price, order.ts),
            Materialized.<String, Sums, WindowStore<Bytes, byte[]>>as("windows")
                .withKeySerde(STRING).withValueSerde(SUMS).withRetention(Duration.ofHours(4)))
        .toStream()
        .map((window, sums) -> KeyValue.pair(window.key(), Order.write(
            writer, new Order.Window(window.key(), window.window().start(), sums.count, sums.sum))))
        .to(output, Produced.with(STRING, Serdes.ByteArray()));
  }

  public static void main(String[] arguments) throws Exception {
    Properties settings = Order.settings(arguments[0]);
    String output = settings.getProperty("output");
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, Order> orders = builder.stream(
        settings.getProperty("input"),
        Consumed.with(STRING, orders())
            .withTimestampExtractor((record, partitionTime) -> ((Order) record.value()).ts));
    switch (settings.getProperty("workload")) {
      case "W1" -> selectPaid(orders, output);
      case "W2" -> runningTotals(orders, output);
      case "W3" -> windows(
          orders,
          output,
          Duration.ofMillis(Long.parseLong(settings.getProperty("window.ms"))),
          Duration.ofMillis(Long.parseLong(settings.getProperty("lateness.ms"))));
      default -> throw new IllegalArgumentException(settings.getProperty("workload"));
    }
    KafkaStreams streams = new KafkaStreams(builder.build(), config(settings));
    CountDownLatch stopped = new CountDownLatch(1);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      streams.close(Duration.ofSeconds(10));
      stopped.countDown();
    }));
    streams.start();
    stopped.await();
  }
}
