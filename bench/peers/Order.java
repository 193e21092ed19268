package bench;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** An order as it is read: the fields that a pipeline uses. Both JVM engines share it, with the records they write. */
@JsonIgnoreProperties(ignoreUnknown = true)
public class Order {
  public long id;
  public long ts;
  public String customer;
  public String sku;
  public long qty;
  public long price;
  public String status;

  /** A result of W1. */
  public record Paid(long id, long ts, String customer, String sku, long total) {
    static Paid of(Order order) {
      return new Paid(order.id, order.ts, order.customer, order.sku, order.qty * order.price);
    }
  }

  /** A result of W2. */
  public record Total(String customer, long count, long sum, long ts) {}

  /** A result of W3. */
  public record Window(String sku, long window_start, long count, long sum) {}

  private static final ObjectMapper MAPPER = new ObjectMapper();

  static ObjectReader reader() {
    return MAPPER.readerFor(Order.class);
  }

  static ObjectWriter writer(Class<?> type) {
    return MAPPER.writerFor(type);
  }

  static byte[] write(ObjectWriter writer, Object result) {
    try {
      return writer.writeValueAsBytes(result);
    } catch (JsonProcessingException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Reads the properties file that the harness writes for a run. */
  static Properties settings(String path) throws IOException {
    Properties settings = new Properties();
    try (InputStream file = new FileInputStream(path)) {
      settings.load(file);
    }
    return settings;
  }
}
