import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * What somebody writes with Kafka Streams who wants what Weir does: a projection per service, a
 * memory of what each service was last sent, and a record for a service whose projection changed.
 * Exactly once, within Kafka. The memory is one row per entity with the hashes of all services:
 * as few reads and writes as it can be done with. That is the lean job. The whole job also does what
 * Weir does besides: it knows an event that is repeated by its id, and keeps the document of each
 * entity, to merge into and to project again; in two more stores.
 *
 * <p>Arguments: brokers, application id, source topic, folder of the state, file of the services
 * (a line each: topic, then per field its name in the event and in the projection, by tabs), lean or
 * whole.
 * Standard input tells it to pause, resume and end; it answers each with a line.
 */
public final class Streams {
  private static final int HASH = 16;
  private static final byte[] SEEN = {1};
  private static final LongAdder forwarded = new LongAdder();

  private record Service(String sink, String topic, int[] fields, byte[][] names) {}

  public static void main(String[] args) throws Exception {
    Map<String, Integer> fields = new HashMap<>();
    List<Service> services = new ArrayList<>();
    for (String line : Files.readAllLines(Path.of(args[4]))) {
      String[] words = line.split("\t");
      int n = (words.length - 1) / 2;
      int[] of = new int[n];
      byte[][] names = new byte[n][];
      for (int i = 0; i < n; i++) {
        of[i] = fields.computeIfAbsent(words[1 + 2 * i], f -> fields.size());
        names[i] = (",\"" + words[2 + 2 * i] + "\":\"").getBytes(StandardCharsets.UTF_8);
      }
      services.add(new Service("sink-" + services.size(), words[0], of, names));
    }

    boolean whole = args[5].equals("whole");
    Topology topology = new Topology();
    topology.addSource("source", Serdes.ByteArray().deserializer(), Serdes.ByteArray().deserializer(), args[2]);
    topology.addProcessor("decide", () -> new Decide(fields, services, whole), "source");
    for (String store : whole ? List.of("sent", "seen", "documents") : List.of("sent")) {
      topology.addStateStore(
          Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), Serdes.ByteArray(), Serdes.ByteArray()),
          "decide");
    }
    for (Service s : services) {
      topology.addSink(s.sink, s.topic, Serdes.ByteArray().serializer(), Serdes.ByteArray().serializer(), "decide");
    }

    Properties p = new Properties();
    p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
    p.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
    p.put(StreamsConfig.STATE_DIR_CONFIG, args[3]);
    p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
    p.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    p.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    KafkaStreams streams = new KafkaStreams(topology, p);
    CountDownLatch running = new CountDownLatch(1);
    streams.setStateListener(
        (now, before) -> {
          if (now == KafkaStreams.State.RUNNING) {
            running.countDown();
          }
        });
    streams.setUncaughtExceptionHandler(
        e -> {
          e.printStackTrace();
          return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    streams.start();
    running.await();
    answer("running");
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String command = in.readLine(); command != null && !command.equals("end"); command = in.readLine()) {
      switch (command) {
        case "pause" -> streams.pause();
        case "resume" -> streams.resume();
        default -> throw new IllegalArgumentException(command);
      }
      answer(Long.toString(forwarded.sum()));
    }
    streams.close();
  }

  private static void answer(String line) {
    System.out.println(line);
    System.out.flush();
  }

  private static final class Decide implements Processor<byte[], byte[], byte[], byte[]> {
    private final JsonFactory json = new JsonFactory();
    private final Map<String, Integer> fields;
    private final List<Service> services;
    private final MessageDigest digest;
    private final String[] values;
    private final boolean whole;
    private String id;
    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<byte[], byte[]> sent;
    private KeyValueStore<byte[], byte[]> seen;
    private KeyValueStore<byte[], byte[]> documents;
    private byte[] document = new byte[1024];

    Decide(Map<String, Integer> fields, List<Service> services, boolean whole) {
      this.whole = whole;
      this.fields = fields;
      this.services = services;
      this.values = new String[fields.size()];
      try {
        this.digest = MessageDigest.getInstance("SHA-256");
      } catch (java.security.NoSuchAlgorithmException e) {
        throw new IllegalStateException(e);
      }
    }

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
      this.context = context;
      this.sent = context.getStateStore("sent");
      if (whole) {
        this.seen = context.getStateStore("seen");
        this.documents = context.getStateStore("documents");
      }
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
      read(record.value());
      if (whole && !keep(record)) {
        return;
      }
      byte[] before = sent.get(record.key());
      byte[] after = before == null ? new byte[services.size() * HASH] : before.clone();
      for (int i = 0; i < services.size(); i++) {
        byte[] projection = project(services.get(i));
        byte[] hash = digest.digest(projection);
        int at = i * HASH;
        if (before != null && Arrays.equals(before, at, at + HASH, hash, 0, HASH)) {
          continue;
        }
        System.arraycopy(hash, 0, after, at, HASH);
        forwarded.increment();
        context.forward(record.withValue(projection), services.get(i).sink);
      }
      if (!Arrays.equals(before, after)) {
        sent.put(record.key(), after);
      }
    }

    /** Notes the event and its entity's document; false if the event was seen before. */
    private boolean keep(Record<byte[], byte[]> record) {
      byte[] event = id.getBytes(StandardCharsets.UTF_8);
      if (seen.get(event) != null) {
        return false;
      }
      seen.put(event, SEEN);
      // One source, whose events have all fields: merged, the document is what came last.
      if (!Arrays.equals(documents.get(record.key()), record.value())) {
        documents.put(record.key(), record.value());
      }
      return true;
    }

    /** The event's id and the fields that any service sees; the others are skipped. */
    private void read(byte[] event) {
      Arrays.fill(values, null);
      try (JsonParser in = json.createParser(event)) {
        in.nextToken();
        while (in.nextToken() == JsonToken.FIELD_NAME) {
          boolean identity = in.currentName().equals("event");
          boolean data = in.currentName().equals("data");
          in.nextToken();
          if (identity) {
            id = in.getText();
          }
          if (!data) {
            in.skipChildren();
            continue;
          }
          while (in.nextToken() == JsonToken.FIELD_NAME) {
            Integer field = fields.get(in.currentName());
            in.nextToken();
            if (field == null) {
              in.skipChildren();
            } else {
              values[field] = in.getText();
            }
          }
        }
      } catch (java.io.IOException e) {
        throw new IllegalStateException(e);
      }
    }

    private byte[] project(Service s) {
      int n = 0;
      for (int i = 0; i < s.fields.length; i++) {
        String value = values[s.fields[i]];
        byte[] name = s.names[i];
        if (document.length < n + name.length + value.length() + 2) {
          document = Arrays.copyOf(document, 2 * (n + name.length + value.length() + 2));
        }
        System.arraycopy(name, 0, document, n, name.length);
        n += name.length;
        for (int c = 0; c < value.length(); c++) { // hexadecimal digits
          document[n++] = (byte) value.charAt(c);
        }
        document[n++] = '"';
      }
      document[0] = '{';
      document[n++] = '}';
      return Arrays.copyOf(document, n);
    }
  }
}
