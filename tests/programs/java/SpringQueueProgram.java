import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ShareKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.DefaultShareConsumerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ShareConsumerFactory;
import org.springframework.kafka.listener.ContainerProperties.ShareAckMode;
import org.springframework.kafka.support.ShareAcknowledgment;

/**
 * Two listeners of spring-kafka in share groups. "mailers" acknowledges each task itself: it rejects values that end in
 * 3, and releases values that end in 5 once. "readers" leaves that to spring-kafka, which rejects a letter whose
 * listener fails: values that end in 3. Both copy what succeeds, with the number of its delivery.
 *
 *   SpringQueueProgram BOOTSTRAP
 */
@Configuration(proxyBeanMethods = false)
@EnableKafka
public class SpringQueueProgram {
    private static String bootstrap;

    public static void main(String[] arguments) throws InterruptedException {
        bootstrap = arguments[0];
        AnnotationConfigApplicationContext context =
            new AnnotationConfigApplicationContext(SpringQueueProgram.class);
        context.registerShutdownHook();
        System.out.println("STARTED");
        Thread.currentThread().join();
    }

    @Bean
    ShareConsumerFactory<String, String> consumers() {
        return new DefaultShareConsumerFactory<>(Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
            ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
            ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 10,
            "share.acquire.mode", "record_limit"));
    }

    @Bean
    KafkaTemplate<String, String> template() {
        Map<String, Object> settings = new HashMap<>();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(settings));
    }

    @Bean
    ShareKafkaListenerContainerFactory<String, String> manual(ShareConsumerFactory<String, String> consumers) {
        ShareKafkaListenerContainerFactory<String, String> factory =
            new ShareKafkaListenerContainerFactory<>(consumers);
        factory.getContainerProperties().setShareAckMode(ShareAckMode.MANUAL);
        factory.setConcurrency(2);
        return factory;
    }

    @Bean
    ShareKafkaListenerContainerFactory<String, String> byItself(ShareConsumerFactory<String, String> consumers) {
        return new ShareKafkaListenerContainerFactory<>(consumers);
    }

    @Bean
    Listeners listeners(KafkaTemplate<String, String> template) {
        return new Listeners(template);
    }

    public static class Listeners {
        private final KafkaTemplate<String, String> template;

        Listeners(KafkaTemplate<String, String> template) {
            this.template = template;
        }

        @KafkaListener(id = "mailers", topics = "tasks", containerFactory = "manual")
        public void work(ConsumerRecord<String, String> task, ShareAcknowledgment acknowledgment) {
            if (task.value().endsWith("3")) {
                acknowledgment.reject();
            } else if (task.value().endsWith("5") && task.deliveryCount().orElseThrow() == 1) {
                acknowledgment.release();
            } else {
                copy("done", task);
                acknowledgment.acknowledge();
            }
        }

        @KafkaListener(id = "readers", topics = "letters", containerFactory = "byItself")
        public void read(ConsumerRecord<String, String> letter) {
            if (letter.value().endsWith("3")) {
                throw new IllegalStateException("failed: " + letter.value());
            }
            copy("read", letter);
        }

        private void copy(String topic, ConsumerRecord<String, String> record) {
            template.send(topic, record.key(), record.value() + " at " + record.deliveryCount().orElseThrow()).join();
        }
    }
}
