// github.com/ulule/limiter/v3: the store of go-redis: Get, Peek, Reset
package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	store "github.com/ulule/limiter/v3/drivers/store/redis"
)

func ululeLimiter() {
	ctx := context.Background()
	kept := must(store.NewStore(redis.NewClient(&redis.Options{Addr: address})))
	limit := limiter.New(kept, must(limiter.NewRateFromFormatted("3-H")))
	for asked := range 4 {
		same(must(limit.Get(ctx, "ann")).Reached, asked == 3)
	}
	same(must(limit.Peek(ctx, "ann")).Remaining, int64(0))
	must(limit.Reset(ctx, "ann"))
	same(must(limit.Get(ctx, "ann")).Remaining, int64(2))
}
