// spring-integration-redis: RedisLockRegistry: a lock that another registry does not get
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;

public class SpringLock {
    public static void main(String[] words) throws Exception {
        var factory = new LettuceConnectionFactory(
                "127.0.0.1", Integer.parseInt(System.getenv("PORT")));
        factory.afterPropertiesSet();
        factory.start();
        var ann = new RedisLockRegistry(factory, "shop");
        var bob = new RedisLockRegistry(factory, "shop");
        var lock = ann.obtain("sale");
        if (!lock.tryLock()) throw new AssertionError("not taken");
        if (bob.obtain("sale").tryLock()) throw new AssertionError("taken twice");
        ann.renewLock("sale");
        lock.unlock();
        if (!bob.obtain("sale").tryLock()) throw new AssertionError("not given back");
        bob.obtain("sale").unlock();
        ann.destroy();
        bob.destroy();
        factory.destroy();
        System.exit(0);
    }
}
