// redisson: RSemaphore with one that waits, RCountDownLatch, keys by a pattern
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.config.Config;

public class RedissonSync {
    public static void main(String[] words) throws Exception {
        var config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + System.getenv("PORT"));
        var redisson = Redisson.create(config);
        var places = redisson.getSemaphore("places");
        if (!places.trySetPermits(2)) throw new AssertionError("there were places");
        if (!places.tryAcquire() || !places.tryAcquire() || places.tryAcquire()) {
            throw new AssertionError("two places");
        }
        var waiter = new Thread(() -> {
            try {
                if (!places.tryAcquire(Duration.ofSeconds(20))) System.exit(3);
            } catch (InterruptedException ended) {
                System.exit(4);
            }
        });
        waiter.start();
        Thread.sleep(500);
        places.release();
        waiter.join(25_000);
        if (waiter.isAlive()) throw new AssertionError("it still waits");
        var latch = redisson.getCountDownLatch("open");
        if (!latch.trySetCount(1)) throw new AssertionError("it was there");
        new Thread(latch::countDown).start();
        if (!latch.await(20, TimeUnit.SECONDS)) throw new AssertionError("it is still closed");
        redisson.getBucket("b:1").set("x");
        redisson.getBucket("b:2").set("x");
        if (redisson.getKeys().deleteByPattern("b:*") != 2) throw new AssertionError("two keys");
        redisson.shutdown();
    }
}
