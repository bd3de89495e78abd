import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
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
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Asks Kafka's authorizer. Lines of input, with tabs between fields:
 *   new SUPER_USERS ALLOW_EVERYONE
 *   acl TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION
 *   ask TYPE NAME OPERATION PRINCIPAL HOST
 *   some TYPE OPERATION PRINCIPAL HOST
 * Each question is answered by a line: ALLOWED or DENIED.
 */
public final class AuthorizerAnswers {
    private record Asking(KafkaPrincipal principal, InetAddress address) implements AuthorizableRequestContext {
        public String listenerName() { return "CLIENTS"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public InetAddress clientAddress() { return address; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "c"; }
        public int correlationId() { return 0; }
    }

    private static StandardAuthorizer authorizer;
    private static Map<Uuid, StandardAcl> acls = new HashMap<>();
    private static boolean loaded;

    private static Asking asking(String principal, String host) throws Exception {
        int colon = principal.indexOf(':');
        return new Asking(
            new KafkaPrincipal(principal.substring(0, colon), principal.substring(colon + 1)), InetAddress.getByName(host));
    }

    private static void load() {
        if (!loaded) {
            authorizer.loadSnapshot(acls);
            authorizer.completeInitialLoad();
            loaded = true;
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] f = line.split("\t", -1);
            switch (f[0]) {
                case "new" -> {
                    authorizer = new StandardAuthorizer();
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.configure(Map.of(
                        "super.users", f[1], "allow.everyone.if.no.acl.found", f[2], "node.id", "1"));
                    acls = new HashMap<>();
                    loaded = false;
                }
                case "acl" -> acls.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(f[1])), f[2], PatternType.fromCode(Byte.parseByte(f[3])), f[4], f[5],
                    AclOperation.fromCode(Byte.parseByte(f[6])), AclPermissionType.fromCode(Byte.parseByte(f[7]))));
                case "ask" -> {
                    load();
                    Action action = new Action(
                        AclOperation.fromCode(Byte.parseByte(f[3])),
                        new ResourcePattern(ResourceType.fromCode(Byte.parseByte(f[1])), f[2], PatternType.LITERAL), 1, false, false);
                    System.out.println(authorizer.authorize(asking(f[4], f[5]), List.of(action)).get(0));
                }
                case "some" -> {
                    load();
                    System.out.println(authorizer.authorizeByResourceType(
                        asking(f[3], f[4]), AclOperation.fromCode(Byte.parseByte(f[2])), ResourceType.fromCode(Byte.parseByte(f[1]))));
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
    }
}
