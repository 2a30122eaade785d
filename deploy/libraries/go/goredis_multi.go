// github.com/redis/go-redis/v9: TxPipelined of keys without a tag
package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

func goredisMulti() {
	ctx := context.Background()
	shop := redis.NewClient(&redis.Options{Addr: address})
	answers := must(shop.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := range 20 {
			pipe.IncrBy(ctx, fmt.Sprintf("sold:%d", number), int64(number))
		}
		return nil
	}))
	same(answers[19].(*redis.IntCmd).Val(), int64(19))
	works(shop.Close())
}
