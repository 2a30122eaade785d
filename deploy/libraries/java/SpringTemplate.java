// spring-data-redis: StringRedisTemplate: values, executePipelined, a DefaultRedisScript, SessionCallback
import java.time.Duration;
import java.util.List;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.RedisOperations;
import org.springframework.data.redis.core.SessionCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;

public class SpringTemplate {
    public static void main(String[] words) {
        var factory = new LettuceConnectionFactory(
                "127.0.0.1", Integer.parseInt(System.getenv("PORT")));
        factory.afterPropertiesSet();
        factory.start();
        var shop = new StringRedisTemplate(factory);
        var values = shop.opsForValue();
        same(values.setIfAbsent("{7}units", "5", Duration.ofMinutes(1)), true);
        same(values.decrement("{7}units", 2), 3L);
        same(shop.getExpire("{7}units") > 0, true);
        var take = new DefaultRedisScript<>("return redis.call('DECR', KEYS[1])", Long.class);
        same(shop.execute(take, List.of("{7}units")), 2L);
        var many = shop.executePipelined((SessionCallback<Object>) new Writes());
        same(many.size(), 100);
        var sale = shop.execute(new SessionCallback<List<Object>>() {
            @Override
            @SuppressWarnings({"unchecked", "rawtypes"})
            public List<Object> execute(RedisOperations session) {
                session.multi();
                session.opsForValue().increment("{7}units");
                session.opsForValue().set("{7}buyer", "ann");
                return session.exec();
            }
        });
        same(sale, List.of(3L, true));
        same(shop.keys("seat:*").size(), 100);
        same(shop.delete("{7}units"), true);
        factory.destroy();
    }

    static class Writes implements SessionCallback<Object> {
        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        public Object execute(RedisOperations session) {
            for (int number = 0; number < 100; number++) {
                session.opsForValue().set("seat:" + number, "free");
            }
            return null;
        }
    }

    static void same(Object came, Object expected) {
        if (!java.util.Objects.equals(came, expected)) {
            throw new AssertionError(came + " came, not " + expected);
        }
    }
}
