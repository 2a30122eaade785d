// redisson: RLock, which counts in a hash
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.config.Config;

public class RedissonLock {
    public static void main(String[] words) throws Exception {
        var config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + System.getenv("PORT"))
                .setRetryAttempts(0);
        var redisson = Redisson.create(config);
        var lock = redisson.getLock("sale");
        if (!lock.tryLock(1, 30, TimeUnit.SECONDS)) throw new AssertionError("not taken");
        lock.unlock();
        redisson.shutdown();
    }
}
