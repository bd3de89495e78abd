import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Kafka's share consumers, driven by calls. */
public final class ShareClients {
    private static final Map<String, KafkaShareConsumer<String, String>> CONSUMERS = new HashMap<>();
    /** Records that the program has and has not acknowledged, by consumer and place. */
    private static final Map<String, Map<List<Object>, ConsumerRecord<String, String>>> HELD = new HashMap<>();
    /** Outcomes that the callback has told, by consumer. */
    private static final Map<String, List<List<Object>>> TOLD = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        Calls.answer(ShareClients::obey);
    }

    private static Object obey(JsonNode asked) {
        String name = asked.get("name").asText();
        KafkaShareConsumer<String, String> consumer = CONSUMERS.get(name);
        switch (asked.get("do").asText()) {
            case "open" -> open(name, asked);
            case "poll" -> {
                return poll(name, Duration.ofMillis(asked.get("ms").asLong()));
            }
            case "acknowledge" -> asked.get("places").forEach(place -> consumer.acknowledge(
                HELD.get(name).remove(List.of(place.get(0).asInt(), place.get(1).asLong())),
                AcknowledgeType.valueOf(asked.get("type").asText())));
            case "commit" -> {
                return commit(consumer);
            }
            case "commit async" -> consumer.commitAsync();
            case "told" -> {
                return TOLD.get(name);
            }
            case "lock" -> {
                return consumer.acquisitionLockTimeoutMs().orElse(-1);
            }
            case "close" -> CONSUMERS.remove(name).close();
            default -> throw new IllegalArgumentException(asked.toString());
        }
        return List.of();
    }

    private static void open(String name, JsonNode asked) {
        KafkaShareConsumer<String, String> opened =
            new KafkaShareConsumer<>(Calls.settings(asked), new StringDeserializer(), new StringDeserializer());
        List<List<Object>> told = new ArrayList<>();
        opened.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach((partition, several) ->
            several.forEach(offset -> told.add(
                List.of(partition.partition(), offset, error == null ? "" : error.getClass().getSimpleName())))));
        opened.subscribe(List.of(asked.get("topic").asText()));
        CONSUMERS.put(name, opened);
        HELD.put(name, new HashMap<>());
        TOLD.put(name, told);
    }

    /** Records of the first poll that has some, as partition, offset, value and number of the delivery. */
    private static List<List<Object>> poll(String name, Duration longest) {
        List<List<Object>> found = new ArrayList<>();
        for (ConsumerRecord<String, String> record : CONSUMERS.get(name).poll(longest)) {
            HELD.get(name).put(List.of(record.partition(), record.offset()), record);
            found.add(List.of(
                record.partition(), record.offset(), record.value(), record.deliveryCount().orElse((short) 0)));
        }
        return found;
    }

    /** Errors by partition; empty for success. */
    private static Map<Integer, String> commit(KafkaShareConsumer<String, String> consumer) {
        Map<Integer, String> found = new TreeMap<>();
        consumer.commitSync(Duration.ofSeconds(60)).forEach((partition, error) -> found.put(
            partition.partition(), error.map(each -> each.getClass().getSimpleName()).orElse("")));
        return found;
    }
}
