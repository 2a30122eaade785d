// A ticket sale with go-redis: 60 buyers want 20 tickets, each may have one, and each asks twice, as
// a client does that got no answer. Usage: sale PORT, or sale PORT PORT... for nodes of a cluster, or
// sale once PORT for single writes that count once
//
// go-redis sends a command again by itself when its answer is lost, three times at most, and a DECR
// counts each time. So each purchase has a token. To have go-redis send nothing twice:
// redis.Options{MaxRetries: -1}.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const tickets, buyers = 20, 60

// All keys of a sale are of one slot.
var sale = fmt.Sprintf("{sale:go:%d}", os.Getpid())

// newToken makes a UUID of version 7: the name of one purchase, the same for each try.
func newToken() string {
	var random [10]byte
	if _, err := rand.Read(random[:]); err != nil {
		log.Fatal(err)
	}
	random[0] = 0x70 | random[0]&0x0f
	random[2] = 0x80 | random[2]&0x3f
	digits := fmt.Sprintf("%012x%x", time.Now().UnixMilli(), random)
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
}

// answer is what KV.APPLY tells.
type answer struct {
	status           string
	numbers          string
	reason, replayed int64
}

// buy sells a ticket, or says why not. All of it happens, or nothing does. Without an answer go-redis
// asks again, with the same token: what was executed is answered, and not executed again.
func buy(ctx context.Context, r redis.UniversalClient, buyer int, token string) answer {
	reply, err := r.Do(ctx,
		"KV.APPLY", sale+":stock", "KEY", fmt.Sprintf("%s:buyer:%d", sale, buyer), "TOKEN", token,
		"k2 absent else 1",       // one for each buyer
		"k1.decimal >= 1 else 2", // none is left
		"k1.decimal -= 1",
		"k2 put", "one ticket",
	).Result()
	if err != nil {
		log.Fatalf("buyer %d: %v", buyer, err)
	}
	told := reply.(map[interface{}]interface{})
	return answer{
		status:   told["status"].(string),
		numbers:  fmt.Sprint(told["numbers"]),
		reason:   told["reason"].(int64),
		replayed: told["replayed"].(int64),
	}
}

func check(holds bool, text string, values ...any) {
	if !holds {
		log.Fatalf(text, values...)
	}
}

// connect opens a client of one node, or of a cluster.
func connect(ports []string) redis.UniversalClient {
	if len(ports) == 1 {
		return redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + ports[0]})
	}
	var addrs []string
	for _, port := range ports {
		addrs = append(addrs, "127.0.0.1:"+port)
	}
	// With the default of 60 s the client asks a node that is dead for a minute, although another one
	// writes since a few seconds.
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                      addrs,
		ClusterStateReloadInterval: time.Second,
	})
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if os.Args[1] == "once" {
		sellOnce(ctx, connect(os.Args[2:]))
		return
	}
	r := connect(os.Args[1:])
	defer r.Close()
	check(r.Set(ctx, sale+":stock", tickets, 0).Err() == nil, "the stock was not set")

	var first, again [buyers]answer
	var group sync.WaitGroup
	for buyer := range buyers {
		group.Go(func() {
			token := newToken()
			first[buyer] = buy(ctx, r, buyer, token)
			again[buyer] = buy(ctx, r, buyer, token)
		})
	}
	group.Wait()

	sold, winner := 0, 0
	for buyer := range buyers {
		ticket, err := r.Get(ctx, fmt.Sprintf("%s:buyer:%d", sale, buyer)).Result()
		if first[buyer].status == "OK" {
			sold, winner = sold+1, buyer
			// The second try bought nothing: it got the first answer again.
			check(again[buyer].replayed == 1, "buyer %d was not known again", buyer)
			check(again[buyer].numbers == first[buyer].numbers, "buyer %d: another answer", buyer)
			check(ticket == "one ticket", "buyer %d has no ticket: %v", buyer, err)
		} else {
			check(first[buyer].reason == 2 && again[buyer].reason == 2, "buyer %d: %v", buyer, first[buyer])
			check(err == redis.Nil, "buyer %d has a ticket", buyer)
		}
	}
	check(sold == tickets, "%d tickets were sold", sold)
	left, err := r.Get(ctx, sale+":stock").Int()
	check(err == nil && left == 0, "%d are left: %v", left, err)
	// A buyer who has a ticket gets no second one, with whatever token.
	check(buy(ctx, r, winner, newToken()).reason == 1, "buyer %d got a second ticket", winner)
	// The way of Redis: commands behind MULTI happen together or not at all.
	pipe := r.TxPipeline()
	count, stock := pipe.Incr(ctx, sale+":closed"), pipe.Get(ctx, sale+":stock")
	_, err = pipe.Exec(ctx)
	check(err == nil && count.Val() == 1 && stock.Val() == "0", "MULTI: %v", err)
	fmt.Printf("go-redis %s: %d tickets, %d buyers, each asked twice\n", redis.Version(), tickets, buyers)
}
