// github.com/redis/go-redis/v9: a hash, a list, a set, a sorted set and a stream
package main

import (
	"context"

	"github.com/redis/go-redis/v9"
)

func goredisTypes() {
	ctx := context.Background()
	shop := redis.NewClient(&redis.Options{Addr: address})
	same(must(shop.HSet(ctx, "cart", "boot", 1, "hat", 2).Result()), int64(2))
	same(must(shop.HGetAll(ctx, "cart").Result()), map[string]string{"boot": "1", "hat": "2"})
	same(must(shop.RPush(ctx, "queue", "a", "b").Result()), int64(2))
	same(must(shop.LPop(ctx, "queue").Result()), "a")
	same(must(shop.SAdd(ctx, "buyers", "ann", "bob").Result()), int64(2))
	same(must(shop.ZAdd(ctx, "bids", redis.Z{Score: 3, Member: "ann"}).Result()), int64(1))
	must(shop.XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: []string{"buyer", "ann"}}).Result())
}
