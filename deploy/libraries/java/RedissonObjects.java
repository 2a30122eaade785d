// redisson: RBucket, RAtomicLong, an RTopic
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.config.Config;

public class RedissonObjects {
    public static void main(String[] words) throws Exception {
        var config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + System.getenv("PORT"));
        var redisson = Redisson.create(config);
        var bucket = redisson.<String>getBucket("hold");
        if (!bucket.setIfAbsent("ann", Duration.ofMinutes(1))) throw new AssertionError("held");
        if (bucket.setIfAbsent("bob")) throw new AssertionError("held twice");
        if (!bucket.compareAndSet("ann", "eve") || !bucket.get().equals("eve")) throw new AssertionError();
        var units = redisson.getAtomicLong("units");
        units.set(5);
        if (units.decrementAndGet() != 4 || !units.compareAndSet(4, 7)) throw new AssertionError();
        var came = new CountDownLatch(1);
        redisson.getTopic("open").addListener(String.class, (channel, message) -> came.countDown());
        if (redisson.getTopic("open").publish("now") != 1) throw new AssertionError("nobody listens");
        if (!came.await(20, TimeUnit.SECONDS)) throw new AssertionError("nothing came");
        redisson.shutdown();
    }
}
