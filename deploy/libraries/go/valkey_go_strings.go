// github.com/valkey-io/valkey-go: DoMulti, a script, Receive of a channel
package main

import (
	"context"
	"time"

	"github.com/valkey-io/valkey-go"
)

func valkeyGoStrings() {
	ctx := context.Background()
	shop := must(valkey.NewClient(valkey.ClientOption{InitAddress: []string{address}, DisableCache: true}))
	answers := shop.DoMulti(ctx, shop.B().Set().Key("{v}units").Value("5").Build(), shop.B().Decr().Key("{v}units").Build())
	same(must(answers[1].AsInt64()), int64(4))
	take := valkey.NewLuaScript(`return redis.call("DECRBY", KEYS[1], ARGV[1])`)
	same(must(take.Exec(ctx, shop, []string{"{v}units"}, []string{"2"}).AsInt64()), int64(2))
	listening, stop := context.WithCancel(ctx)
	came := make(chan string, 1)
	go shop.Receive(listening, shop.B().Subscribe().Channel("open").Build(), func(message valkey.PubSubMessage) {
		came <- message.Message
	})
	for must(shop.Do(ctx, shop.B().Publish().Channel("open").Message("now").Build()).AsInt64()) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	same(<-came, "now")
	stop()
	shop.Close()
}
