// github.com/go-redis/cache/v9: Once, Set with a lifetime, Delete, with a local cache in front
package main

import (
	"context"
	"time"

	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
)

func goredisCache() {
	ctx := context.Background()
	shop := redis.NewClient(&redis.Options{Addr: address})
	type product struct{ Price int }
	made := 0
	for range 2 {
		prices := cache.New(&cache.Options{Redis: shop, LocalCache: cache.NewTinyLFU(100, time.Minute)})
		var boot product
		works(prices.Once(&cache.Item{Ctx: ctx, Key: "boot", Value: &boot, TTL: time.Minute,
			Do: func(*cache.Item) (any, error) { made++; return &product{7}, nil }}))
		same(boot, product{7})
	}
	same(made, 1)
	prices := cache.New(&cache.Options{Redis: shop})
	works(prices.Set(&cache.Item{Ctx: ctx, Key: "hat", Value: product{3}, TTL: time.Hour}))
	works(prices.Delete(ctx, "hat"))
	same(prices.Exists(ctx, "hat"), false)
}
