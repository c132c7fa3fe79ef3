import java.io.File;
import java.security.PrivilegedExceptionAction;
import java.util.Scanner;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.minikdc.MiniKdc;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * A name node and a data node on loopback that accept clients with Kerberos only, and a key
 * distribution center, until standard input ends. Arguments: a folder, and the protection of data on
 * its way. The folder gets {@code user.keytab}, the key of {@code alice@EXAMPLE.COM}, and
 * {@code tokens}, delegation tokens as Spark has them in containers of YARN.
 */
public class KerberosCluster {
  public static void main(String[] arguments) throws Exception {
    File folder = new File(arguments[0]);
    File center = new File(folder, "kdc");
    center.mkdirs();
    MiniKdc kdc = new MiniKdc(MiniKdc.createConf(), center);
    kdc.start();
    File service = new File(folder, "service.keytab");
    File user = new File(folder, "user.keytab");
    kdc.createPrincipal(service, "hdfs/localhost", "HTTP/localhost");
    kdc.createPrincipal(user, "alice");
    Configuration conf = newConf(service, "@" + kdc.getRealm(), arguments[1]);
    UserGroupInformation.setConfiguration(conf);
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf, new File(folder, "dfs")).numDataNodes(1).build();
    cluster.waitActive();
    UserGroupInformation.loginUserFromKeytabAndReturnUGI("alice@" + kdc.getRealm(), user.getPath())
        .doAs((PrivilegedExceptionAction<Void>) () -> {
          Credentials tokens = new Credentials();
          FileSystem.get(cluster.getURI(), cluster.getConfiguration(0))
              .addDelegationTokens("alice", tokens);
          tokens.writeTokenStorageFile(new Path(new File(folder, "tokens").toURI()), conf);
          return null;
        });
    System.out.println("ready localhost:" + cluster.getNameNodePort() + " " + kdc.getKrb5conf());
    new Scanner(System.in).hasNextLine();
    Runtime.getRuntime().halt(0);
  }

  private static Configuration newConf(File keytab, String realm, String protection) {
    Configuration conf = new Configuration();
    conf.set("hadoop.security.authentication", "kerberos");
    conf.set("hadoop.security.authorization", "true");
    conf.set("hadoop.rpc.protection", protection);
    conf.set("dfs.permissions.enabled", "false");
    conf.set("dfs.namenode.fs-limits.min-block-size", "0");
    conf.set("dfs.block.access.token.enable", "true");
    conf.set("dfs.data.transfer.protection", protection);
    conf.set("ignore.secure.ports.for.testing", "true");
    for (String node : new String[] {"namenode", "datanode"}) {
      conf.set("dfs." + node + ".kerberos.principal", "hdfs/localhost" + realm);
      conf.set("dfs." + node + ".keytab.file", keytab.getPath());
    }
    conf.set("dfs.web.authentication.kerberos.principal", "HTTP/localhost" + realm);
    conf.set("dfs.web.authentication.kerberos.keytab", keytab.getPath());
    return conf;
  }
}
