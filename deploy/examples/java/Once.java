// A write that counts once, whoever sends it again. Usage: java -cp 'jars/*' Once.java PORT sells
// seven of ten units with Jedis.

import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.UUID;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;

public class Once {
    static final ProtocolCommand OPTS = () -> "KV.OPTS".getBytes(StandardCharsets.UTF_8);
    static final ProtocolCommand DECR = () -> "DECR".getBytes(StandardCharsets.UTF_8);
    static final SecureRandom RANDOM = new SecureRandom();

    /** A UUID of version 7: the name of one write, the same for each try. */
    static String newToken() {
        long high = System.currentTimeMillis() << 16 | 0x7000 | RANDOM.nextLong() & 0x0FFF;
        long low = RANDOM.nextLong() & 0x3FFFFFFFFFFFFFFFL | 0x8000000000000000L;
        return new UUID(high, low).toString();
    }

    /**
     * Executes one write of one key once, and returns its answer. The token is made before the first
     * try. KV.OPTS and the write leave in one pipeline: on two connections the write would have no
     * token. Give the token of an order that outlives this process.
     */
    static Object once(RedisClient jedis, String token, ProtocolCommand command, String... words) {
        for (int left = 2;; left--) {
            try (var both = jedis.pipelined()) {
                both.sendCommand(OPTS, "token=" + token);
                Response<Object> answer = both.sendCommand(command, words);
                both.sync();
                return answer.get();
            } catch (JedisConnectionException lost) {
                if (left == 0) {
                    throw lost;
                }
            }
        }
    }

    static void check(boolean holds, Object answer) {
        if (!holds) {
            throw new AssertionError(String.valueOf(answer));
        }
    }

    public static void main(String[] words) {
        try (var jedis = RedisClient.create("127.0.0.1", Integer.parseInt(words[0]))) {
            String stock = "{once:java:" + ProcessHandle.current().pid() + "}";
            jedis.set(stock, "10");
            for (long left = 9; left >= 4; left--) {
                Object answer = once(jedis, newToken(), DECR, stock);
                check(answer.equals(left), answer);
            }
            String token = newToken();
            for (int asked = 0; asked < 2; asked++) {
                Object answer = once(jedis, token, DECR, stock);
                check(answer.equals(3L), answer);
            }
        }
        System.out.println("Jedis: seven writes, each once");
    }
}
