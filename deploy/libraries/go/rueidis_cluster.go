// github.com/redis/rueidis: a client for clusters: DoMulti over slots, MGet and MSet of the helpers
package main

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
)

func rueidisCluster() {
	ctx := context.Background()
	shop := must(rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{address},
		DisableCache: true,
		ShuffleInit:  true,
	}))
	values := map[string]string{}
	for number := range 100 {
		values[fmt.Sprintf("k:%d", number)] = fmt.Sprint(number)
	}
	for _, err := range rueidis.MSet(shop, ctx, values) {
		works(err)
	}
	for key, value := range values {
		same(must(shop.Do(ctx, shop.B().Get().Key(key).Build()).ToString()), value)
	}
	shop.Close()
}
