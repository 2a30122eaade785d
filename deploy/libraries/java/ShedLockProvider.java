// shedlock-provider-redis-spring: a lock of a job: taken once, extended, given back
import java.time.Duration;
import java.time.Instant;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

public class ShedLockProvider {
    public static void main(String[] words) {
        var factory = new LettuceConnectionFactory(
                "127.0.0.1", Integer.parseInt(System.getenv("PORT")));
        factory.afterPropertiesSet();
        factory.start();
        var provider = new RedisLockProvider(factory, "shop");
        var job = new LockConfiguration(
                Instant.now(), "job", Duration.ofMinutes(1), Duration.ZERO);
        var lock = provider.lock(job).orElseThrow();
        if (provider.lock(job).isPresent()) throw new AssertionError("taken twice");
        lock = lock.extend(Duration.ofMinutes(2), Duration.ZERO).orElseThrow();
        lock.unlock();
        if (provider.lock(job).isEmpty()) throw new AssertionError("not given back");
        factory.destroy();
    }
}
