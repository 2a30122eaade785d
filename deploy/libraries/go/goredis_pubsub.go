// github.com/redis/go-redis/v9: Subscribe, PSubscribe, Channel, a subscriber that reconnects
package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

func goredisPubsub() {
	ctx := context.Background()
	shop := redis.NewClient(&redis.Options{Addr: address})
	listener := shop.Subscribe(ctx, "open")
	works(listener.PSubscribe(ctx, "stock:*"))
	must(listener.Receive(ctx))
	must(listener.Receive(ctx))
	messages := listener.Channel()
	same(must(shop.Publish(ctx, "open", "now").Result()), int64(1))
	same((<-messages).Payload, "now")
	same(must(shop.Publish(ctx, "stock:7", "3").Result()), int64(1))
	same((<-messages).Pattern, "stock:*")
	works(shop.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err())
	for must(shop.Publish(ctx, "open", "again").Result()) == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	same((<-messages).Payload, "again")
	works(listener.Close())
	works(shop.Close())
}
