// github.com/go-redsync/redsync/v4: a mutex of ten goroutines, Extend, one that is taken
package main

import (
	"context"
	"sync"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func redsyncMutex() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: address})
	locks := redsync.New(goredis.NewPool(client))
	works(client.Set(ctx, "sum", 0, 0).Err())
	var all sync.WaitGroup
	for range 10 {
		all.Add(1)
		go func() {
			defer all.Done()
			mutex := locks.NewMutex("sum:lock", redsync.WithTries(1000))
			works(mutex.LockContext(ctx))
			sum := must(client.Get(ctx, "sum").Int())
			works(client.Set(ctx, "sum", sum+1, 0).Err())
			same(must(mutex.UnlockContext(ctx)), true)
		}()
	}
	all.Wait()
	same(must(client.Get(ctx, "sum").Int()), 10)
	held := locks.NewMutex("sale")
	works(held.Lock())
	same(must(held.Extend()), true)
	same(locks.NewMutex("sale").TryLock() != nil, true)
	same(must(held.Unlock()), true)
}
