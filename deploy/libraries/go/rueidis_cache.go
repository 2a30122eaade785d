// github.com/redis/rueidis: DoCache, the client-side cache that is its default
package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
)

func rueidisCache() {
	ctx := context.Background()
	shop := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}}))
	works(shop.Do(ctx, shop.B().Set().Key("price").Value("10").Build()).Error())
	for asked := range 2 {
		answer := shop.DoCache(ctx, shop.B().Get().Key("price").Cache(), time.Minute)
		same(must(answer.ToString()), "10")
		same(answer.IsCacheHit(), asked == 1)
	}
	other := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}}))
	works(other.Do(ctx, other.B().Set().Key("price").Value("12").Build()).Error())
	for must(shop.DoCache(ctx, shop.B().Get().Key("price").Cache(), time.Minute).ToString()) != "12" {
		time.Sleep(10 * time.Millisecond)
	}
}
