// github.com/redis/go-redis/v9: Watch and TxPipelined, ten goroutines count to a hundred
package main

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

func goredisWatch() {
	ctx := context.Background()
	shop := redis.NewClient(&redis.Options{Addr: address})
	raise := func(tx *redis.Tx) error {
		bid, err := tx.Get(ctx, "{lot}bid").Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "{lot}bid", bid+1, 0)
			pipe.Append(ctx, "{lot}log", ".")
			return nil
		})
		return err
	}
	var all sync.WaitGroup
	for range 10 {
		all.Add(1)
		go func() {
			defer all.Done()
			for won := 0; won < 10; {
				if err := shop.Watch(ctx, raise, "{lot}bid"); err == nil {
					won++
				} else if !errors.Is(err, redis.TxFailedErr) {
					panic(err)
				}
			}
		}()
	}
	all.Wait()
	same(must(shop.Get(ctx, "{lot}bid").Int()), 100)
	same(must(shop.StrLen(ctx, "{lot}log").Result()), int64(100))
	works(shop.Close())
}
