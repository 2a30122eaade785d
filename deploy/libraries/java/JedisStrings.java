// jedis: RedisClient: counters, SetParams, a pipeline, a transaction, a script, SCAN, over a reconnect
import java.util.List;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

public class JedisStrings {
    public static void main(String[] words) {
        int port = Integer.parseInt(System.getenv("PORT"));
        try (RedisClient shop = RedisClient.create("127.0.0.1", port)) {
            same(shop.set("{7}units", "5", SetParams.setParams().ex(60)), "OK");
            same(shop.decr("{7}units"), 4L);
            same(shop.set("{7}units", "9", SetParams.setParams().nx()), null);
            try (var pipe = shop.pipelined()) {
                for (int number = 0; number < 500; number++) pipe.set("seat:" + number, "free");
                var last = pipe.get("seat:499");
                pipe.sync();
                same(last.get(), "free");
            }
            try (var sale = shop.multi()) {
                sale.decr("{7}units");
                sale.set("{7}buyer", "ann");
                same(sale.exec(), List.of(3L, "OK"));
            }
            String take = "return redis.call('DECRBY', KEYS[1], ARGV[1])";
            same(shop.eval(take, List.of("{7}units"), List.of("2")), 1L);
            same(shop.evalsha(shop.scriptLoad(take, "{7}units"), List.of("{7}units"), List.of("1")), 0L);
        }
        try (RedisClient again = RedisClient.create("127.0.0.1", port)) {
            same(again.mget("{7}units", "none", "{7}buyer").toString(), "[0, null, ann]");
            String cursor = "0";
            int found = 0;
            do {
                var page = again.scan(cursor, new ScanParams().match("seat:*").count(100));
                found += page.getResult().size();
                cursor = page.getCursor();
            } while (!cursor.equals("0"));
            same(found, 500);
        }
    }

    static void same(Object came, Object expected) {
        if (!java.util.Objects.equals(came, expected)) {
            throw new AssertionError(came + " came, not " + expected);
        }
    }
}
