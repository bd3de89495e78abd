import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's transactional producers, and readers of their records, driven by calls. */
public final class TransactionalClients {
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        Calls.answer(TransactionalClients::obey);
    }

    private static List<?> obey(JsonNode asked) {
        String name = asked.path("name").asText();
        KafkaProducer<byte[], byte[]> producer = PRODUCERS.get(name);
        switch (asked.get("do").asText()) {
            case "open" -> open(name, Calls.settings(asked));
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(
                asked.get("topic").asText(), asked.get("partition").asInt(), null, bytes(asked.get("value"))));
            case "flush" -> producer.flush();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "offsets" -> producer.sendOffsetsToTransaction(
                offsets(asked), new ConsumerGroupMetadata(asked.get("group").asText()));
            case "close" -> PRODUCERS.remove(name).close(Duration.ZERO);
            case "read" -> {
                return read(asked.get("topic").asText(), Calls.settings(asked));
            }
            default -> throw new IllegalArgumentException(asked.toString());
        }
        return List.of();
    }

    private static void open(String name, Map<String, Object> settings) {
        KafkaProducer<byte[], byte[]> opened =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        PRODUCERS.put(name, opened);
        if (settings.containsKey("transactional.id")) {
            opened.initTransactions();
        }
    }

    /** Every record up to the end that this isolation level knows. */
    private static List<List<Object>> read(String topic, Map<String, Object> settings) {
        List<List<Object>> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = consumer.partitionsFor(topic, LONG).stream()
                .map(one -> new TopicPartition(topic, one.partition())).collect(Collectors.toList());
            Map<TopicPartition, Long> ends = consumer.endOffsets(all, LONG);
            consumer.assign(all);
            consumer.seekToBeginning(all);
            while (all.stream().anyMatch(one -> consumer.position(one, LONG) < ends.get(one))) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> found.add(List.of(
                    record.partition(), record.offset(), new String(record.value(), StandardCharsets.UTF_8))));
            }
        }
        return found;
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode asked) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        asked.get("offsets").fields().forEachRemaining(one -> found.put(
            new TopicPartition(asked.get("topic").asText(), Integer.parseInt(one.getKey())),
            new OffsetAndMetadata(one.getValue().asLong())));
        return found;
    }

    private static byte[] bytes(JsonNode value) {
        return value.asText().getBytes(StandardCharsets.UTF_8);
    }
}
