// jedis: JedisPubSub in a thread, subscribe and psubscribe
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisClient;

public class JedisPubsub {
    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(System.getenv("PORT"));
        var came = new LinkedBlockingQueue<String>();
        var listener = new JedisPubSub() {
            @Override
            public void onMessage(String channel, String message) {
                came.add(channel + "=" + message);
            }

            @Override
            public void onPMessage(String pattern, String channel, String message) {
                came.add(pattern + " " + channel + "=" + message);
            }

            @Override
            public void onSubscribe(String channel, int count) {
                psubscribe("stock:*");
            }

            @Override
            public void onPSubscribe(String pattern, int count) {
                came.add("ready");
            }
        };
        try (RedisClient shop = RedisClient.create("127.0.0.1", port)) {
            var thread = new Thread(() -> shop.subscribe(listener, "open"));
            thread.start();
            for (String expected : new String[] {"ready", "open=now", "stock:* stock:7=3"}) {
                String told = came.poll(20, TimeUnit.SECONDS);
                if (!expected.equals(told)) throw new AssertionError(told + " came");
                if (told.equals("ready")) shop.publish("open", "now");
                if (told.equals("open=now")) shop.publish("stock:7", "3");
            }
            listener.unsubscribe();
            listener.punsubscribe();
            thread.join(20_000);
            if (thread.isAlive()) throw new AssertionError("it still listens");
        }
    }
}
