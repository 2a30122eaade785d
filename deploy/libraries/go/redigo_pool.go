// github.com/gomodule/redigo: a pool, Send and Flush, MULTI, a script, PubSubConn
package main

import (
	"github.com/gomodule/redigo/redis"
)

func redigoPool() {
	pool := &redis.Pool{MaxIdle: 2, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", address) }}
	shop := pool.Get()
	must(shop.Do("SET", "{7}units", 5, "EX", 60))
	for range 3 {
		works(shop.Send("DECR", "{7}units"))
	}
	works(shop.Flush())
	for left := 4; left > 1; left-- {
		same(must(redis.Int(shop.Receive())), left)
	}
	works(shop.Send("MULTI"))
	works(shop.Send("INCR", "{7}units"))
	works(shop.Send("GET", "{7}units"))
	same(must(redis.Ints(shop.Do("EXEC"))), []int{3, 3})
	take := redis.NewScript(1, `return redis.call("DECRBY", KEYS[1], ARGV[1])`)
	same(must(redis.Int(take.Do(shop, "{7}units", 2))), 1)
	listener := redis.PubSubConn{Conn: pool.Get()}
	works(listener.Subscribe("open"))
	listener.Receive()
	same(must(redis.Int(shop.Do("PUBLISH", "open", "now"))), 1)
	same(string(listener.Receive().(redis.Message).Data), "now")
	works(listener.Unsubscribe())
	works(listener.Close())
	works(shop.Close())
	works(pool.Close())
}
