import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/**
 * Asks Kafka for the short names of principals. Lines of input, with tabs between fields: a rule, and a principal. Each
 * is answered by a line: "name NAME", "rule" if the rule cannot be read, and "none" if there is no name.
 */
public final class KerberosNames {
    private static String answer(String rule, String principal) {
        KerberosShortNamer namer;
        try {
            namer = KerberosShortNamer.fromUnparsedRules("R", List.of(rule));
        } catch (RuntimeException error) {
            return "rule";
        }
        try {
            return "name " + namer.shortName(KerberosName.parse(principal));
        } catch (Exception error) {
            return "none";
        }
    }

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t", -1);
            output.println(answer(fields[0], fields[1]));
        }
        output.flush();
    }
}
