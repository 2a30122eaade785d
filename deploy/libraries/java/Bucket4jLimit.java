// bucket4j_jdk17-lettuce: a bucket of three tokens, asked by two proxies
import io.github.bucket4j.Bandwidth;
import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import java.time.Duration;

public class Bucket4jLimit {
    public static void main(String[] words) {
        var client = RedisClient.create("redis://127.0.0.1:" + System.getenv("PORT"));
        var limit = Bandwidth.builder().capacity(3).refillIntervally(3, Duration.ofHours(1)).build();
        var rule = BucketConfiguration.builder().addLimit(limit).build();
        byte[] key = "bucket:ann".getBytes();
        int taken = 0;
        for (int asked = 0; asked < 5; asked++) {
            var manager = Bucket4jLettuce.casBasedBuilder(client).build();
            taken += manager.builder().build(key, () -> rule).tryConsume(1) ? 1 : 0;
        }
        if (taken != 3) throw new AssertionError(taken + " were taken");
        client.shutdown();
    }
}
