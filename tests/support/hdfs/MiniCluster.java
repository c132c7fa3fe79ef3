import java.io.File;
import java.util.Scanner;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;

/**
 * Name nodes and data nodes on loopback, until standard input ends. Arguments: a folder, and how many
 * name nodes and data nodes there are. Of two name nodes the first is active. A line of standard
 * input is an order, and one of standard output says when it is done.
 */
public class MiniCluster {
  public static void main(String[] arguments) throws Exception {
    int nameNodes = Integer.parseInt(arguments[1]);
    Configuration conf = new Configuration();
    conf.set("dfs.permissions.enabled", "false");
    conf.set("dfs.replication", "2");
    conf.set("dfs.namenode.fs-limits.min-block-size", "0");
    conf.set("dfs.ha.tail-edits.period", "1s");
    // A name node that starts is in safe mode until all data nodes have sent reports.
    conf.set("dfs.namenode.safemode.min.datanodes", arguments[2]);
    conf.set("dfs.namenode.safemode.extension.testing", "3000");
    conf.set("dfs.heartbeat.interval", "1s");
    MiniDFSNNTopology topology = nameNodes == 1 ? MiniDFSNNTopology.simpleSingleNN(0, 0)
        : MiniDFSNNTopology.simpleHATopology(nameNodes);
    MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf, new File(arguments[0]))
        .nnTopology(topology).numDataNodes(Integer.parseInt(arguments[2])).build();
    int active = 0;
    if (nameNodes > 1) {
      cluster.transitionToActive(active);
    }
    cluster.waitActive(active);
    StringBuilder addresses = new StringBuilder("ready");
    for (int i = 0; i < nameNodes; i++) {
      addresses.append(" 127.0.0.1:").append(cluster.getNameNodePort(i));
    }
    System.out.println(addresses);
    Scanner orders = new Scanner(System.in);
    while (orders.hasNextLine()) {
      String order = orders.nextLine();
      switch (order) {
        case "stop data node" -> cluster.stopDataNode(0);
        case "hand over" -> {
          cluster.transitionToStandby(active);
          active = 1 - active;
          cluster.transitionToActive(active);
        }
        case "stop active" -> {
          cluster.shutdownNameNode(active);
          active = 1 - active;
          cluster.transitionToActive(active);
        }
        case "start standby" -> cluster.restartNameNode(1 - active, false);
        default -> throw new IllegalArgumentException(order);
      }
      System.out.println("done");
    }
    Runtime.getRuntime().halt(0);
  }
}
