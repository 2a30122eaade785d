// github.com/redis/rueidis: DoMulti, Dedicated with WATCH, a Lua script, without a client-side cache
package main

import (
	"context"

	"github.com/redis/rueidis"
)

func rueidisStrings() {
	ctx := context.Background()
	shop := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true}))
	works(shop.Do(ctx, shop.B().Set().Key("{7}units").Value("5").ExSeconds(60).Build()).Error())
	answers := shop.DoMulti(ctx, shop.B().Decr().Key("{7}units").Build(), shop.B().Get().Key("{7}units").Build())
	same(must(answers[0].AsInt64()), int64(4))
	same(must(answers[1].ToString()), "4")
	works(shop.Dedicated(func(one rueidis.DedicatedClient) error {
		one.Do(ctx, one.B().Watch().Key("{7}units").Build())
		answers := one.DoMulti(ctx, one.B().Multi().Build(), one.B().Incr().Key("{7}units").Build(), one.B().Exec().Build())
		same(len(must(answers[2].ToArray())), 1)
		return nil
	}))
	take := rueidis.NewLuaScript(`return redis.call("DECRBY", KEYS[1], ARGV[1])`)
	same(must(take.Exec(ctx, shop, []string{"{7}units"}, []string{"2"}).AsInt64()), int64(3))
	shop.Close()
}
