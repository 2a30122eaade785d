// lettuce-core: connectPubSub with a listener, subscribe and psubscribe
import io.lettuce.core.RedisClient;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public class LettucePubsub {
    public static void main(String[] words) throws Exception {
        var client = RedisClient.create("redis://127.0.0.1:" + System.getenv("PORT"));
        var came = new LinkedBlockingQueue<String>();
        var listener = client.connectPubSub();
        listener.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(String channel, String message) {
                came.add(channel + "=" + message);
            }

            @Override
            public void message(String pattern, String channel, String message) {
                came.add(pattern + " " + channel + "=" + message);
            }
        });
        listener.sync().subscribe("open");
        listener.sync().psubscribe("stock:*");
        var shop = client.connect().sync();
        for (String[] sent : new String[][] {{"open", "now"}, {"stock:7", "3"}}) {
            if (shop.publish(sent[0], sent[1]) != 1) throw new AssertionError("nobody listens");
            String told = came.poll(20, TimeUnit.SECONDS);
            if (told == null || !told.endsWith(sent[0] + "=" + sent[1])) throw new AssertionError(told);
        }
        client.shutdown();
    }
}
