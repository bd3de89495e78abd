import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own clients on every way into a secured cluster. The one argument is a list of ways as JSON, see
 * secured_cells.py. Prints what was seen by each as one line: {"SSL":{...},...}.
 */
public final class SecuredClients {
    private static final int RECORDS = 10;
    private static final Duration WAIT = Duration.ofSeconds(60);

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Map<String, Object> told = new TreeMap<>();
        for (JsonNode way : json.readTree(arguments[0])) {
            told.put(way.get("name").asText(), walk(way));
        }
        System.out.println(json.writeValueAsString(told));
        System.exit(0);
    }

    private static Map<String, Object> walk(JsonNode way) throws Exception {
        Map<String, Object> told = new HashMap<>();
        String topic = way.get("topic").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = Admin.create(settings(way))) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 2))).all().get();
            told.put("partitions", settled(2, () ->
                admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size()));
            write(way, topic);
            told.put("read", read(way, topic));
            long committed = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().values().stream()
                .mapToLong(OffsetAndMetadata::offset).sum();
            told.put("committed", committed >= 2 * RECORDS);
            AlterConfigOp change = new AlterConfigOp(new ConfigEntry("retention.ms", "86400000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            told.put("setting", settled("86400000", () ->
                admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value()));
            told.put("denied", refusal(way));
            admin.deleteTopics(List.of(topic)).all().get();
            told.put("deleted", settled(true, () -> !admin.listTopics().names().get().contains(topic)));
        }
        return told;
    }

    /** What is asked, once it is as wanted: another broker than the one that changed it may answer later. */
    private static Object settled(Object wanted, Callable<?> ask) throws Exception {
        long end = System.nanoTime() + Duration.ofSeconds(10).toNanos();
        while (true) {
            Object found;
            try {
                found = ask.call();
            } catch (ExecutionException error) {
                found = String.valueOf(error.getCause());
            }
            if (found.equals(wanted) || System.nanoTime() > end) {
                return found;
            }
            Thread.sleep(20);
        }
    }

    private static void write(JsonNode way, String topic) throws Exception {
        try (KafkaProducer<String, String> producer = producer(way, Map.of("enable.idempotence", "true"))) {
            send(producer, topic, "plain");
        }
        try (KafkaProducer<String, String> producer = producer(way, Map.of("transactional.id", topic))) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, topic, "committed");
            producer.commitTransaction();
            producer.beginTransaction();
            send(producer, topic, "aborted");
            producer.flush();
            producer.abortTransaction();
        }
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String kind) {
        for (int number = 0; number < RECORDS; number++) {
            producer.send(new ProducerRecord<>(topic, number % 2, null, kind + "-" + number));
        }
    }

    private static List<String> read(JsonNode way, String topic) {
        Map<String, Object> settings = settings(way);
        settings.putAll(Map.of(
            "group.id", topic,
            "group.protocol", "consumer",
            "auto.offset.reset", "earliest",
            "isolation.level", "read_committed"));
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + WAIT.toNanos();
            while (found.size() < 2 * RECORDS && System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(500)).forEach(record ->
                    found.add(record.value().substring(0, record.value().lastIndexOf('-'))));
            }
            consumer.commitSync();
        }
        found.sort(null);
        return found;
    }

    private static String refusal(JsonNode way) throws Exception {
        try (KafkaProducer<String, String> producer = producer(way, Map.of("enable.idempotence", "false"))) {
            producer.send(new ProducerRecord<>(way.get("denied").asText(), "denied")).get();
            return "nothing";
        } catch (ExecutionException error) {
            String name = error.getCause().getClass().getSimpleName();
            return name.equals("TopicAuthorizationException") ? "TOPIC_AUTHORIZATION_FAILED" : name;
        }
    }

    private static KafkaProducer<String, String> producer(JsonNode way, Map<String, Object> more) {
        Map<String, Object> settings = settings(way);
        settings.putAll(more);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static Map<String, Object> settings(JsonNode way) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", way.get("bootstrap").asText());
        String protocol = way.get("protocol").asText();
        settings.put("security.protocol", protocol);
        if (protocol.endsWith("SSL")) {
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", way.get("ca").asText());
        }
        if (!way.get("both").asText().isEmpty()) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", way.get("both").asText());
        }
        String mechanism = way.get("mechanism").asText();
        if (mechanism.equals("OAUTHBEARER")) {
            settings.putAll(bearer(way.get("password").asText()));
        } else if (!mechanism.isEmpty()) {
            settings.put("sasl.mechanism", mechanism);
            String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            settings.put("sasl.jaas.config", "org.apache.kafka.common.security." + module + " required username="
                + quoted(way.get("user").asText()) + " password=" + quoted(way.get("password").asText()) + ";");
        }
        return settings;
    }

    /** The token is read from a file, which Kafka's clients may read only if a property of Java says so. */
    private static Map<String, Object> bearer(String token) {
        try {
            Path file = Files.createTempFile("token", ".jwt");
            file.toFile().deleteOnExit();
            Files.writeString(file, token);
            String url = file.toUri().toString();
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", file.toString());
            String security = "org.apache.kafka.common.security.oauthbearer.";
            return Map.of(
                "sasl.mechanism", "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url", url,
                "sasl.login.callback.handler.class", security + "OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config", security + "OAuthBearerLoginModule required;");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
