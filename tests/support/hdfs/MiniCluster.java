import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and two data nodes on loopback, until standard input ends or asks for a restart. */
public class MiniCluster {
  public static void main(String[] arguments) throws Exception {
    Configuration conf = new Configuration();
    conf.set("dfs.permissions.enabled", "false");
    conf.set("dfs.replication", "2");
    conf.set("dfs.namenode.fs-limits.min-block-size", "0");
    MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf, new File(arguments[0]))
        .numDataNodes(2).build();
    cluster.waitActive();
    System.out.println("ready " + cluster.getFileSystem().getUri());
    for (int read = System.in.read(); read >= 0; read = System.in.read()) {
      if (read == 'd') {
        cluster.stopDataNode(0);
        System.out.println("stopped");
      }
    }
    Runtime.getRuntime().halt(0);
  }
}
