// spring-data-redis: RedisCacheManager: put, get, putIfAbsent, evict, clear, a lifetime
import java.time.Duration;
import org.springframework.data.redis.cache.RedisCacheConfiguration;
import org.springframework.data.redis.cache.RedisCacheManager;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;

public class SpringCache {
    public static void main(String[] words) throws Exception {
        var factory = new LettuceConnectionFactory(
                "127.0.0.1", Integer.parseInt(System.getenv("PORT")));
        factory.afterPropertiesSet();
        factory.start();
        var rule = RedisCacheConfiguration.defaultCacheConfig().entryTtl(Duration.ofMinutes(5));
        var manager = RedisCacheManager.builder(factory).cacheDefaults(rule).build();
        manager.afterPropertiesSet();
        var prices = manager.getCache("prices");
        prices.put("boot", "7");
        same(prices.get("boot", String.class), "7");
        same(prices.putIfAbsent("boot", "8").get(), "7");
        same(prices.get("hat", () -> "3"), "3");
        var shop = new StringRedisTemplate(factory);
        same(shop.getExpire("prices::boot") > 200, true);
        prices.evict("boot");
        same(prices.get("boot"), null);
        prices.clear();
        // It answers before all keys are gone.
        for (int tries = 0; prices.get("hat") != null; tries++) {
            if (tries == 200) throw new AssertionError("it is still there");
            Thread.sleep(50);
        }
        factory.destroy();
    }

    static void same(Object came, Object expected) {
        if (!java.util.Objects.equals(came, expected)) {
            throw new AssertionError(came + " came, not " + expected);
        }
    }
}
