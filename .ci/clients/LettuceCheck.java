// Lettuce against the RESP port: what its users do on the first day.
// Usage: java -cp 'jars/*' LettuceCheck.java PORT

import io.lettuce.core.LettuceVersion;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;

public class LettuceCheck {
    static void check(boolean holds, String text) {
        if (!holds) {
            throw new IllegalStateException(text);
        }
    }

    public static void main(String[] args) {
        var client = RedisClient.create("redis://127.0.0.1:" + args[0]);
        try (var connection = client.connect()) {
            var redis = connection.sync();
            redis.del("lettuce:k", "lettuce:n");
            check("OK".equals(redis.set("lettuce:k", "v", SetArgs.Builder.ex(100))), "SET");
            check(redis.get("lettuce:k").equals("v") && redis.ttl("lettuce:k") > 0, "GET, TTL");
            check(redis.incrby("lettuce:n", 5) == 5, "INCRBY");
            check(redis.mget("lettuce:k", "lettuce:none").get(1).isEmpty(), "MGET");
            var async = connection.async();
            var first = async.incr("lettuce:n");
            var second = async.incr("lettuce:n");
            check(first.toCompletableFuture().join() == 6, "a pipeline");
            check(second.toCompletableFuture().join() == 7, "a pipeline");
            redis.multi();
            redis.incr("lettuce:n");
            redis.get("lettuce:n");
            var done = redis.exec();
            check(done.get(0).equals(8L) && done.get(1).equals("8"), "MULTI");
            try {
                redis.incr("lettuce:k");
                throw new IllegalStateException("text was counted");
            } catch (RedisCommandExecutionException error) {
                check(error.getMessage().contains("not an integer"), error.getMessage());
            }
            var keys = ScanIterator.scan(redis, ScanArgs.Builder.matches("lettuce:*").limit(100));
            check(keys.stream().count() == 2, "SCAN");
        } finally {
            client.shutdown();
        }
        String version = LettuceVersion.getVersion();
        System.out.println("Lettuce " + version + ": commands, pipeline, MULTI, SCAN");
    }
}
