// github.com/redis/go-redis/v9: ClusterClient: a pipeline over slots, TxPipelined and a script of one tag
package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

func goredisCluster() {
	ctx := context.Background()
	shop := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}})
	answers := must(shop.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := range 200 {
			pipe.Set(ctx, fmt.Sprintf("k:%d", number), number, 0)
		}
		return nil
	}))
	same(len(answers), 200)
	for number := range 200 {
		same(must(shop.Get(ctx, fmt.Sprintf("k:%d", number)).Int()), number)
	}
	must(shop.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "{s}units", 5, 0)
		pipe.Decr(ctx, "{s}units")
		return nil
	}))
	take := redis.NewScript(`return redis.call("DECR", KEYS[1])`)
	same(must(take.Run(ctx, shop, []string{"{s}units"}).Int()), 3)
	works(shop.Close())
}
