import com.fasterxml.jackson.databind.JsonNode;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.internals.KafkaFutureImpl;
import org.apache.kafka.trogdor.common.JsonUtil;
import org.apache.kafka.trogdor.task.TaskSpec;
import org.apache.kafka.trogdor.task.TaskWorker;

/**
 * Carries out one workload of Trogdor, until it is done or its time is over. Trogdor's agent would do the same, and listen
 * on all addresses beside it.
 *
 *   TrogdorProgram SPECIFICATION
 *
 * It prints what the workload has counted, as one line of JSON, and ends with 1 if it has failed.
 */
public final class TrogdorProgram {
    public static void main(String[] arguments) throws Exception {
        TaskSpec specification = JsonUtil.objectFromCommandLineArgument(arguments[0], TaskSpec.class);
        TaskWorker worker = specification.newTaskWorker("task");
        AtomicReference<JsonNode> status = new AtomicReference<>();
        KafkaFutureImpl<String> done = new KafkaFutureImpl<>();
        worker.start(null, status::set, done); // no workload looks at the platform
        String error = "";
        try {
            error = done.get(specification.durationMs(), TimeUnit.MILLISECONDS);
        } catch (TimeoutException over) {
            System.err.println("its time is over");
        }
        worker.stop(null);
        System.out.println("failed with: " + error);
        System.out.println("status " + JsonUtil.toJsonString(status.get()));
        System.exit(error.isEmpty() ? 0 : 1);
    }
}
