import java.math.BigInteger;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ContainerProperties.AckMode;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.retrytopic.RetryTopicHeaders;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Two listeners of spring-kafka. One copies "jobs" to "done", by way of retry topics and dead letters. The other copies
 * "orders" to "billed", each in a transaction, or to "orders-dead". Values that end in 3 never succeed, and jobs that
 * end in 5 succeed the third time. One instance of the application:
 *
 *   SpringProgram BOOTSTRAP INSTANCE_ID
 */
@Configuration(proxyBeanMethods = false)
@EnableKafkaRetryTopic
public class SpringProgram {
    private static String bootstrap;
    private static String instance;

    public static void main(String[] arguments) throws InterruptedException {
        bootstrap = arguments[0];
        instance = arguments[1];
        AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext(SpringProgram.class);
        context.registerShutdownHook();
        System.out.println("STARTED");
        Thread.currentThread().join();
    }

    private static Map<String, Object> producing() {
        Map<String, Object> settings = new HashMap<>();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        return settings;
    }

    @Bean
    KafkaAdmin admin() {
        return new KafkaAdmin(Map.of("bootstrap.servers", bootstrap));
    }

    @Bean
    TaskScheduler scheduler() {
        return new ThreadPoolTaskScheduler();
    }

    @Bean
    ConsumerFactory<String, String> consumers() {
        return new DefaultKafkaConsumerFactory<>(Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
            ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed",
            ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 6000));
    }

    @Bean
    KafkaTemplate<String, String> template() {
        return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(producing()));
    }

    @Bean
    KafkaTemplate<String, String> transactional() {
        DefaultKafkaProducerFactory<String, String> producers = new DefaultKafkaProducerFactory<>(producing());
        producers.setTransactionIdPrefix("billing-" + instance + "-");
        return new KafkaTemplate<>(producers);
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> retrying(ConsumerFactory<String, String> consumers) {
        ConcurrentKafkaListenerContainerFactory<String, String> factory =
            new ConcurrentKafkaListenerContainerFactory<>();
        factory.setConsumerFactory(consumers);
        factory.getContainerProperties().setAckMode(AckMode.RECORD);
        return factory;
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> inTransactions(
            ConsumerFactory<String, String> consumers,
            @Qualifier("transactional") KafkaTemplate<String, String> transactional) {
        ConcurrentKafkaListenerContainerFactory<String, String> factory =
            new ConcurrentKafkaListenerContainerFactory<>();
        factory.setConsumerFactory(consumers);
        factory.getContainerProperties()
            .setKafkaAwareTransactionManager(new KafkaTransactionManager<>(transactional.getProducerFactory()));
        DeadLetterPublishingRecoverer toDead = new DeadLetterPublishingRecoverer(
            transactional, (record, problem) -> new TopicPartition("orders-dead", record.partition()));
        factory.setAfterRollbackProcessor(
            new DefaultAfterRollbackProcessor<>(toDead, new FixedBackOff(0, 1), transactional, true));
        return factory;
    }

    @Bean
    Jobs jobs(@Qualifier("template") KafkaTemplate<String, String> template) {
        return new Jobs(template);
    }

    @Bean
    Orders orders(@Qualifier("transactional") KafkaTemplate<String, String> transactional) {
        return new Orders(transactional);
    }

    /** At least once. */
    public static class Jobs {
        private final KafkaTemplate<String, String> template;

        Jobs(KafkaTemplate<String, String> template) {
            this.template = template;
        }

        @RetryableTopic(
            attempts = "3", backOff = @BackOff(delay = 200, multiplier = 2), numPartitions = "3",
            replicationFactor = "3", kafkaTemplate = "template", listenerContainerFactory = "retrying")
        @KafkaListener(id = "jobs", topics = "jobs", containerFactory = "retrying")
        public void work(ConsumerRecord<String, String> job) {
            Header attempts = job.headers().lastHeader(RetryTopicHeaders.DEFAULT_HEADER_ATTEMPTS);
            int attempt = attempts == null ? 1 : new BigInteger(attempts.value()).intValue();
            if (job.value().endsWith("3") || job.value().endsWith("5") && attempt < 3) {
                throw new IllegalStateException("failed: " + job.value());
            }
            template.send("done", job.key(), job.value() + " at " + attempt).join();
        }

        @DltHandler
        public void giveUp(ConsumerRecord<String, String> job) {
            template.send("given-up", job.key(), job.value()).join();
        }
    }

    /** Exactly once. */
    public static class Orders {
        private final KafkaTemplate<String, String> transactional;

        Orders(KafkaTemplate<String, String> transactional) {
            this.transactional = transactional;
        }

        @KafkaListener(id = "billing", topics = "orders", containerFactory = "inTransactions")
        public void bill(ConsumerRecord<String, String> order) throws InterruptedException {
            transactional.send("billed", order.key(), order.value()).join();
            Thread.sleep(30); // so that most kills find a transaction open
            if (order.value().endsWith("3")) {
                throw new IllegalStateException("failed: " + order.value());
            }
        }
    }
}
