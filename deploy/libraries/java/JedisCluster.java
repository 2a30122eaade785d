// jedis: RedisClusterClient: keys of all slots, a pipeline, a script of one tag
import java.util.Set;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClusterClient;

public class JedisCluster {
    public static void main(String[] words) {
        var node = new HostAndPort("127.0.0.1", Integer.parseInt(System.getenv("PORT")));
        try (var shop = RedisClusterClient.create(Set.of(node))) {
            try (var pipe = shop.pipelined()) {
                for (int number = 0; number < 200; number++) pipe.set("k:" + number, "" + number);
            }
            for (int number = 0; number < 200; number++) {
                if (!shop.get("k:" + number).equals("" + number)) throw new AssertionError(number);
            }
            shop.set("{s}units", "5");
            var take = shop.eval("return redis.call('DECR', KEYS[1])", 1, "{s}units");
            if (!take.equals(4L)) throw new AssertionError(take);
        }
    }
}
