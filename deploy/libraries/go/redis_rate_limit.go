// github.com/go-redis/redis_rate/v10: Allow, AllowN, AllowAtMost, Reset
package main

import (
	"context"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

func redisRateLimit() {
	ctx := context.Background()
	limiter := redis_rate.NewLimiter(redis.NewClient(&redis.Options{Addr: address}))
	allowed := 0
	for range 5 {
		allowed += must(limiter.Allow(ctx, "ann", redis_rate.PerHour(3))).Allowed
	}
	same(allowed, 3)
	same(must(limiter.AllowN(ctx, "bob", redis_rate.PerHour(10), 7)).Remaining, 3)
	same(must(limiter.AllowAtMost(ctx, "bob", redis_rate.PerHour(10), 7)).Allowed, 3)
	works(limiter.Reset(ctx, "ann"))
	same(must(limiter.Allow(ctx, "ann", redis_rate.PerHour(3))).Allowed, 1)
}
