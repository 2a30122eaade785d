// github.com/redis/go-redis/v9: counters, SetArgs, MGET, SCAN, by RESP2 and RESP3, over a reconnect
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

func goredisStrings() {
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		options := &redis.Options{Addr: address, Protocol: protocol}
		shop := redis.NewClient(options)
		works(shop.Del(ctx, "units", "hold").Err())
		same(must(shop.Set(ctx, "units", 10, 0).Result()), "OK")
		same(must(shop.DecrBy(ctx, "units", 3).Result()), int64(7))
		same(must(shop.SetNX(ctx, "hold", "ann", time.Minute).Result()), true)
		same(must(shop.SetNX(ctx, "hold", "bob", time.Minute).Result()), false)
		old := must(shop.SetArgs(ctx, "hold", "bob", redis.SetArgs{Get: true, KeepTTL: true}).Result())
		same(old, "ann")
		same(must(shop.TTL(ctx, "hold").Result()) > 50*time.Second, true)
		works(shop.Close())

		again := redis.NewClient(options)
		same(must(again.MGet(ctx, "units", "none", "hold").Result()), []any{"7", nil, "bob"})
		for number := range 200 {
			works(again.Set(ctx, fmt.Sprintf("seat:%d", number), number, 0).Err())
		}
		found := map[string]bool{}
		for keys := again.Scan(ctx, 0, "seat:*", 50).Iterator(); keys.Next(ctx); {
			found[keys.Val()] = true
		}
		same(len(found), 200)
		same(again.Get(ctx, "none").Err(), redis.Nil)
		works(again.Close())
	}
}
