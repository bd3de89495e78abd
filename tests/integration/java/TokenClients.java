import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own producer and consumer that log in with a delegation token, and write and read until both are refused:
 * TokenClients BOOTSTRAP TOPIC MECHANISM ID HMAC. Prints "acknowledged N" and "read N" now and then, and at last
 * "consumer refused ERROR", "producer gave up ERROR", and "producer refused ERROR" of another producer. The first one
 * tells no refusal: it goes on with logging in until its record is too old.
 */
public final class TokenClients {
    private static final int PAUSE_MS = 20;
    private static final int TOLD_EACH = 10;
    private static final int DELIVERED_WITHIN_MS = 10_000;

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = settings(arguments);
        String topic = arguments[1];
        Thread reader = new Thread(() -> read(settings, topic));
        reader.start();
        write(settings, topic);
        reader.join();
        System.exit(0);
    }

    private static Map<String, Object> settings(String[] arguments) {
        String login = "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"%s\" password=\"%s\""
            + " tokenauth=\"true\";";
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", arguments[2]);
        settings.put("sasl.jaas.config", String.format(login, arguments[3], arguments[4]));
        settings.put("enable.idempotence", true);
        settings.put("delivery.timeout.ms", DELIVERED_WITHIN_MS);
        settings.put("request.timeout.ms", DELIVERED_WITHIN_MS / 2);
        settings.put("group.id", arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }

    private static void write(Map<String, Object> settings, String topic) throws InterruptedException {
        try (KafkaProducer<String, String> producer = producer(settings)) {
            for (int number = 1; ; number++) {
                producer.send(new ProducerRecord<>(topic, "" + number)).get();
                tell("acknowledged", number, 1);
                Thread.sleep(PAUSE_MS);
            }
        } catch (ExecutionException error) {
            System.out.println("producer gave up " + error.getCause().getClass().getSimpleName());
        }
        try (KafkaProducer<String, String> another = producer(settings)) {
            another.partitionsFor(topic);
        } catch (AuthenticationException error) {
            System.out.println("producer refused " + error.getClass().getSimpleName());
        }
    }

    private static KafkaProducer<String, String> producer(Map<String, Object> settings) {
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static void read(Map<String, Object> settings, String topic) {
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            for (int count = 0; ; ) {
                int more = consumer.poll(Duration.ofMillis(200)).count();
                count += more;
                tell("read", count, more);
            }
        } catch (AuthenticationException error) {
            System.out.println("consumer refused " + error.getClass().getSimpleName());
        }
    }

    private static void tell(String what, int count, int more) {
        if (count / TOLD_EACH > (count - more) / TOLD_EACH) {
            System.out.println(what + " " + count);
        }
    }
}
