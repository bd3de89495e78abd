import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Function;

/**
 * Calls of clients, one for each line of the input, such as {"do":"begin","name":"a"}. Each is answered by one line:
 * {"value":...}, or {"error":"ProducerFencedException","message":"..."}.
 */
final class Calls {
    private Calls() { }

    /** Answers all calls, and ends the process. */
    static void answer(Function<JsonNode, Object> call) throws IOException {
        ObjectMapper json = new ObjectMapper();
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = asked.readLine()) != null; ) {
            Map<String, Object> answer;
            try {
                answer = Map.of("value", call.apply(json.readTree(line)));
            } catch (RuntimeException error) {
                answer = Map.of("error", error.getClass().getSimpleName(), "message", String.valueOf(error));
            }
            System.out.println(json.writeValueAsString(answer));
            System.out.flush();
        }
        System.exit(0);
    }

    /** The settings of a client that a call opens. */
    static Map<String, Object> settings(JsonNode asked) {
        Map<String, Object> found = new HashMap<>();
        asked.get("settings").fields().forEachRemaining(
            setting -> found.put(setting.getKey(), setting.getValue().asText()));
        return found;
    }
}
