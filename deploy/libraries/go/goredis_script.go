// github.com/redis/go-redis/v9: NewScript, Run behind SCRIPT FLUSH, RunRO, Exists
package main

import (
	"context"

	"github.com/redis/go-redis/v9"
)

func goredisScript() {
	ctx := context.Background()
	shop := redis.NewClient(&redis.Options{Addr: address})
	buy := redis.NewScript(`
		local left = tonumber(redis.call("GET", KEYS[1]) or "0")
		if left < tonumber(ARGV[1]) then return -1 end
		redis.call("SET", KEYS[2], ARGV[1], "EX", 600)
		return redis.call("DECRBY", KEYS[1], ARGV[1])`)
	keys := []string{"{7}units", "{7}ann"}
	works(shop.Set(ctx, keys[0], 5, 0).Err())
	same(must(buy.Run(ctx, shop, keys, 3).Int()), 2)
	works(shop.ScriptFlush(ctx).Err())
	same(must(buy.Exists(ctx, shop).Result()), []bool{false})
	same(must(buy.Run(ctx, shop, keys, 3).Int()), -1)
	same(must(buy.Exists(ctx, shop).Result()), []bool{true})
	read := redis.NewScript(`return {redis.call("GET", KEYS[1]), redis.call("GET", KEYS[2])}`)
	same(must(read.RunRO(ctx, shop, keys).StringSlice()), []string{"2", "3"})
	works(shop.Close())
}
