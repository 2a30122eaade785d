// lettuce-core: RedisClusterClient: MSET and MGET over slots, a script of one tag
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.cluster.RedisClusterClient;
import java.util.HashMap;

public class LettuceCluster {
    public static void main(String[] words) {
        var client = RedisClusterClient.create("redis://127.0.0.1:" + System.getenv("PORT"));
        try (var connection = client.connect()) {
            var shop = connection.sync();
            var values = new HashMap<String, String>();
            for (int number = 0; number < 100; number++) values.put("k:" + number, "" + number);
            if (!shop.mset(values).equals("OK")) throw new AssertionError("MSET");
            var told = shop.mget(values.keySet().toArray(new String[0]));
            for (var pair : told) {
                if (!values.get(pair.getKey()).equals(pair.getValue())) throw new AssertionError(pair);
            }
            shop.set("{s}units", "5");
            Long left = shop.eval("return redis.call('DECR', KEYS[1])",
                    ScriptOutputType.INTEGER, "{s}units");
            if (left != 4) throw new AssertionError(left);
        }
        client.shutdown();
    }
}
