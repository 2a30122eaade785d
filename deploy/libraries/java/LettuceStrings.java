// lettuce-core: sync, async and reactive commands, a transaction, a script, a value of bytes
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.codec.ByteArrayCodec;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.concurrent.Future;

public class LettuceStrings {
    public static void main(String[] words) throws Exception {
        var client = RedisClient.create("redis://127.0.0.1:" + System.getenv("PORT"));
        try (var shop = client.connect()) {
            var sync = shop.sync();
            same(sync.set("{7}units", "5", SetArgs.Builder.ex(60).nx()), "OK");
            same(sync.decr("{7}units"), 4L);
            var all = new ArrayList<Future<?>>();
            for (int number = 0; number < 1000; number++) all.add(shop.async().set("k:" + number, "v"));
            boolean done = LettuceFutures.awaitAll(
                    Duration.ofSeconds(30), all.toArray(new Future[0]));
            same(done, true);
            same(shop.reactive().mget("k:1", "k:999").count().block(), 2L);
            sync.multi();
            sync.decr("{7}units");
            sync.get("{7}units");
            same(sync.exec().stream().toList().toString(), "[3, 3]");
            Long left = sync.eval("return redis.call('DECR', KEYS[1])",
                    ScriptOutputType.INTEGER, "{7}units");
            same(left, 2L);
        }
        try (var bytes = client.connect(new ByteArrayCodec())) {
            byte[] photo = {0, -1, 13, 10};
            bytes.sync().set("photo".getBytes(), photo);
            same(Arrays.equals(bytes.sync().get("photo".getBytes()), photo), true);
        }
        client.shutdown();
    }

    static void same(Object came, Object expected) {
        if (!java.util.Objects.equals(came, expected)) {
            throw new AssertionError(came + " came, not " + expected);
        }
    }
}
