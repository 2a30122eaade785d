package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"
)

// once executes one write of one key once, whoever sends it again, and returns its answer. The token
// is made before the first try, and go-redis sends a whole pipeline again. KV.OPTS and the write leave
// in one pipeline: a client that connects anew in between would send the write alone, without a token.
// Give the token of an order that outlives this process; an empty one is made anew.
func once(ctx context.Context, r redis.UniversalClient, token string, command ...any) (any, error) {
	if token == "" {
		token = newToken()
	}
	for tries := 3; ; tries-- {
		both := r.Pipeline()
		both.Do(ctx, "KV.OPTS", "token="+token)
		write := both.Do(ctx, command...)
		_, err := both.Exec(ctx)
		if _, isRefusal := err.(redis.Error); err == nil || isRefusal || tries == 1 {
			return write.Val(), err
		}
	}
}

// sellOnce sells seven of ten units.
func sellOnce(ctx context.Context, r redis.UniversalClient) {
	stock := fmt.Sprintf("{once:go:%d}", os.Getpid())
	check(r.Set(ctx, stock, 10, 0).Err() == nil, "the stock was not set")
	for left := int64(9); left >= 4; left-- {
		answer, err := once(ctx, r, "", "DECR", stock)
		check(err == nil && answer == left, "%v, %v in place of %d", answer, err, left)
	}
	token := newToken()
	for range 2 {
		answer, err := once(ctx, r, token, "DECR", stock)
		check(err == nil && answer == int64(3), "%v, %v in place of 3", answer, err)
	}
	log.Print("go-redis: seven writes, each once")
}
