// A ticket sale with Jedis: 60 buyers want 20 tickets, each may have one, and each asks twice, as a
// client does that got no answer. Usage: java -cp 'jars/*' Sale.java PORT
//
// Jedis sends nothing again by itself: a command whose answer is lost throws, and nobody knows
// whether it was executed. Lettuce does send it again, and a DECR counts twice, unless it has
// ClientOptions.builder().disconnectedBehavior(REJECT_COMMANDS). So each purchase has a token.

import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;

public class Sale {
    static final int TICKETS = 20;
    static final int BUYERS = 60;
    // All keys of a sale are of one slot.
    static final String SALE = "{sale:java:" + ProcessHandle.current().pid() + "}";
    static final ProtocolCommand APPLY = () -> "KV.APPLY".getBytes(StandardCharsets.UTF_8);
    static final SecureRandom RANDOM = new SecureRandom();

    record Answers(Map<String, Object> first, Map<String, Object> again) {}

    /** A UUID of version 7: the name of one purchase, the same for each try. */
    static String newToken() {
        long high = System.currentTimeMillis() << 16 | 0x7000 | RANDOM.nextLong() & 0x0FFF;
        long low = RANDOM.nextLong() & 0x3FFFFFFFFFFFFFFFL | 0x8000000000000000L;
        return new UUID(high, low).toString();
    }

    static String text(Object reply) {
        return reply instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8)
            : String.valueOf(reply);
    }

    /**
     * Sells a ticket, or says why not. All of it happens, or nothing does. Without an answer it asks
     * again with the same token: what was executed is answered, and not executed again.
     */
    static Map<String, Object> buy(RedisClient jedis, int buyer, String token) {
        for (int left = 2;; left--) {
            try {
                return ask(jedis, buyer, token);
            } catch (JedisConnectionException lost) {
                if (left == 0) {
                    throw lost;
                }
            }
        }
    }

    @SuppressWarnings("deprecation") // the shortest way to a command that Jedis does not know
    static Map<String, Object> ask(RedisClient jedis, int buyer, String token) {
        Object reply = jedis.sendCommand(APPLY,
            SALE + ":stock", "KEY", SALE + ":buyer:" + buyer, "TOKEN", token,
            "k2 absent else 1",       // one for each buyer
            "k1.decimal >= 1 else 2", // none is left
            "k1.decimal -= 1",
            "k2 put", "one ticket");
        // RESP3 tells a map, RESP2 its keys and values in turn.
        List<?> told = (List<?>) reply;
        Map<String, Object> answer = new HashMap<>();
        for (int at = 0; at < told.size(); at++) {
            if (told.get(at) instanceof Map.Entry<?, ?> entry) {
                answer.put(text(entry.getKey()), entry.getValue());
            } else {
                answer.put(text(told.get(at)), told.get(++at));
            }
        }
        answer.put("status", text(answer.get("status")));
        return answer;
    }

    static void check(boolean holds, String text) {
        if (!holds) {
            throw new IllegalStateException(text);
        }
    }

    public static void main(String[] args) throws Exception {
        var threads = Executors.newFixedThreadPool(8);
        try (var jedis = RedisClient.create("127.0.0.1", Integer.parseInt(args[0]))) {
            jedis.set(SALE + ":stock", String.valueOf(TICKETS));
            Map<Integer, Answers> answers = new ConcurrentHashMap<>();
            List<Future<?>> running = new ArrayList<>();
            for (int number = 0; number < BUYERS; number++) {
                int buyer = number;
                running.add(threads.submit(() -> {
                    String token = newToken();
                    answers.put(buyer, new Answers(buy(jedis, buyer, token), buy(jedis, buyer, token)));
                }));
            }
            for (Future<?> buyer : running) {
                buyer.get();
            }
            verify(jedis, answers);
        } finally {
            threads.shutdownNow();
        }
        var about = new Properties();
        try (var file = RedisClient.class.getResourceAsStream(
                "/META-INF/maven/redis.clients/jedis/pom.properties")) {
            about.load(file);
        }
        String version = about.getProperty("version");
        System.out.println("Jedis " + version + ": " + TICKETS + " tickets, " + BUYERS
            + " buyers, each asked twice");
    }

    static void verify(RedisClient jedis, Map<Integer, Answers> answers) {
        int sold = 0;
        int winner = 0;
        for (var entry : answers.entrySet()) {
            int buyer = entry.getKey();
            Answers told = entry.getValue();
            String ticket = jedis.get(SALE + ":buyer:" + buyer);
            if (told.first.get("status").equals("OK")) {
                sold++;
                winner = buyer;
                // The second try bought nothing: it got the first answer again.
                check(told.again.get("replayed").equals(1L), buyer + " was not known again");
                check(told.again.get("numbers").equals(told.first.get("numbers")), "another answer");
                check("one ticket".equals(ticket), buyer + " has no ticket");
            } else {
                check(told.first.get("reason").equals(2L), "another reason: " + told.first);
                check(ticket == null, buyer + " has a ticket");
            }
        }
        check(answers.size() == BUYERS && sold == TICKETS, sold + " tickets were sold");
        check("0".equals(jedis.get(SALE + ":stock")), "tickets are left");
        // A buyer who has a ticket gets no second one, with whatever token.
        check(buy(jedis, winner, newToken()).get("reason").equals(1L), "a second ticket");
        // The way of Redis: commands behind MULTI happen together or not at all.
        try (AbstractTransaction multi = jedis.multi()) {
            Response<Long> count = multi.incr(SALE + ":closed");
            Response<String> left = multi.get(SALE + ":stock");
            multi.exec();
            check(count.get() == 1 && left.get().equals("0"), "MULTI");
        }
    }
}
