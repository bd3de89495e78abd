import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * How long Kafka's authorizer takes for a decision. Lines of input, with tabs between fields:
 *   acl TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION
 *   ask TOPIC
 * All questions are asked again and again, for half a second that counts after as long that does not. Printed:
 * microseconds for one.
 */
public final class AuthorizerTimes {
    private static final long ROUND_NS = 500_000_000L;

    private record Asking(KafkaPrincipal principal, InetAddress address) implements AuthorizableRequestContext {
        public String listenerName() { return "CLIENTS"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public InetAddress clientAddress() { return address; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "c"; }
        public int correlationId() { return 0; }
    }

    private static byte number(String field) {
        return Byte.parseByte(field);
    }

    private static double microseconds(StandardAuthorizer authorizer, List<List<Action>> questions) throws Exception {
        Asking asking = new Asking(new KafkaPrincipal("User", "u7"), InetAddress.getByName("10.0.0.1"));
        long asked = 0, began = System.nanoTime(), took = 0;
        while (took < ROUND_NS) {
            authorizer.authorize(asking, questions.get((int) (asked++ % questions.size())));
            took = System.nanoTime() - began;
        }
        return took / 1e3 / asked;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        List<List<Action>> questions = new ArrayList<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] f = line.split("\t", -1);
            if (f[0].equals("acl")) {
                acls.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(number(f[1])), f[2], PatternType.fromCode(number(f[3])), f[4], f[5],
                    AclOperation.fromCode(number(f[6])), AclPermissionType.fromCode(number(f[7]))));
            } else {
                questions.add(List.of(new Action(
                    AclOperation.READ, new ResourcePattern(ResourceType.TOPIC, f[1], PatternType.LITERAL), 1, false, false)));
            }
        }
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.configure(Map.of("super.users", "", "node.id", "1"));
        authorizer.loadSnapshot(acls);
        authorizer.completeInitialLoad();
        microseconds(authorizer, questions);
        System.out.println(microseconds(authorizer, questions));
    }
}
