// github.com/bsm/redislock: Obtain, Refresh, TTL, Release, one that is not obtained
package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

func redislockLock() {
	ctx := context.Background()
	locks := redislock.New(redis.NewClient(&redis.Options{Addr: address}))
	lock := must(locks.Obtain(ctx, "sale", 20*time.Second, nil))
	_, err := locks.Obtain(ctx, "sale", time.Second, nil)
	same(err, redislock.ErrNotObtained)
	works(lock.Refresh(ctx, time.Minute, nil))
	same(must(lock.TTL(ctx)) > 20*time.Second, true)
	works(lock.Release(ctx))
	same(lock.Release(ctx), redislock.ErrLockNotHeld)
}
