import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one JVM, as each start of one costs a second.
 * Reads lines such as ["org.apache.kafka.tools.TopicCommand","--list"], answers {"status":0,"out":"","err":""}.
 */
public final class ToolServer {
    /** Thrown where a tool would end the process; some catch it and go on to report it, to no effect. */
    private static final class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    private record Outcome(int status, String out, String err) { }

    private static final Switched OUT = new Switched();
    private static final Switched ERR = new Switched();
    private static Outcome outcome;

    /** Tools and what they log through keep the stream they first saw, so that only its target is exchanged. */
    private static final class Switched extends OutputStream {
        private ByteArrayOutputStream target = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int value) {
            target.write(value);
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int length) {
            target.write(bytes, from, length);
        }

        synchronized String take() {
            String taken = target.toString();
            target.reset();
            return taken;
        }
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        PrintStream complaints = System.err;
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> error.printStackTrace(complaints));
        System.setOut(new PrintStream(OUT, true));
        System.setErr(new PrintStream(ERR, true));
        Exit.setExitProcedure((status, message) -> { throw ended(status); });
        Exit.setHaltProcedure((status, message) -> { throw ended(status); });
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = asked.readLine()) != null; ) {
            String[] command = json.readValue(line, String[].class);
            outcome = null;
            run(command[0], Arrays.copyOfRange(command, 1, command.length));
            answers.println(json.writeValueAsString(
                Map.of("status", outcome.status, "out", outcome.out, "err", outcome.err)));
            answers.flush();
            OUT.take();
            ERR.take();
        }
    }

    private static void run(String tool, String[] arguments) throws ReflectiveOperationException {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            ended(0);
        } catch (InvocationTargetException failed) {
            if (outcome == null) {
                failed.getCause().printStackTrace();
                ended(1);
            }
        }
    }

    /** The first end of a tool is the one that counts. */
    private static Ended ended(int status) {
        if (outcome == null) {
            System.out.flush();
            System.err.flush();
            outcome = new Outcome(status, OUT.take(), ERR.take());
        }
        return new Ended();
    }
}
