import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS with one node on loopback, in a folder. It prints its URI, and ends with its standard input. */
public class MiniHdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set("hadoop.security.authentication", "simple");
        settings.setBoolean("dfs.permissions.enabled", false);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings, new File(arguments[0])).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("Running on " + cluster.getURI());
        System.out.flush();
        while (System.in.read() >= 0) {
        }
        cluster.shutdown();
        System.exit(0);
    }
}
