// github.com/redis/go-redis/v9: Pipelined of a thousand commands, read back by fifty goroutines
package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

func goredisPipeline() {
	ctx := context.Background()
	shop := redis.NewClient(&redis.Options{Addr: address, PoolSize: 8})
	answers := must(shop.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := range 1000 {
			pipe.Set(ctx, fmt.Sprintf("seat:%d", number), number, 0)
		}
		return nil
	}))
	same(len(answers), 1000)
	var all sync.WaitGroup
	for reader := range 50 {
		all.Add(1)
		go func() {
			defer all.Done()
			for number := reader; number < 1000; number += 50 {
				same(must(shop.Get(ctx, fmt.Sprintf("seat:%d", number)).Int()), number)
			}
		}()
	}
	all.Wait()
	works(shop.Close())
}
