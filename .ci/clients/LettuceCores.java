// Lettuce's client for clusters at the ports of the cores.
// Usage: java -cp 'jars/*' LettuceCores.java ENTRY PORT PORT...
// ENTRY is the port that the cores share, the others are theirs.

import io.lettuce.core.LettuceVersion;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.cluster.RedisClusterClient;
import java.util.Arrays;
import java.util.HashSet;

public class LettuceCores {
    static void check(boolean holds, String text) {
        if (!holds) {
            throw new IllegalStateException(text);
        }
    }

    public static void main(String[] args) {
        var ports = Arrays.copyOfRange(args, 1, args.length);
        for (var port : args) {
            var client = RedisClusterClient.create("redis://127.0.0.1:" + port);
            try (var connection = client.connect()) {
                var redis = connection.sync();
                for (int number = 0; number < 200; number++) {
                    check("OK".equals(redis.set("lettuce-core:" + number, "v")), "SET");
                }
                for (int number = 0; number < 200; number++) {
                    check(redis.get("lettuce-core:" + number).equals("v"), "GET");
                }
                var writers = client.getPartitions().stream().filter(it -> !it.getSlots().isEmpty());
                check(writers.count() == ports.length, "a node for each core");
                var all = ScanIterator.scan(redis, ScanArgs.Builder.matches("lettuce-core:*"));
                var found = new HashSet<String>();
                all.forEachRemaining(found::add);
                check(found.size() == 200, "SCAN over all cores");
                for (int number = 0; number < 200; number++) {
                    redis.del("lettuce-core:" + number);
                }
            }
            client.shutdown();
        }
        System.out.println(
                "Lettuce " + LettuceVersion.getVersion() + ": over " + ports.length + " cores");
    }
}
