// The programs of this folder, one by its name: `libraries NAME`, with PORT in the environment.
package main

import (
	"fmt"
	"os"
	"reflect"
)

var address = "127.0.0.1:" + os.Getenv("PORT")

var programs = map[string]func(){
	"asynq_worker":      asynqWorker,
	"goredis_cache":     goredisCache,
	"goredis_cluster":   goredisCluster,
	"goredis_multi":     goredisMulti,
	"goredis_pipeline":  goredisPipeline,
	"goredis_pubsub":    goredisPubsub,
	"goredis_script":    goredisScript,
	"goredis_strings":   goredisStrings,
	"goredis_types":     goredisTypes,
	"goredis_watch":     goredisWatch,
	"redigo_pool":       redigoPool,
	"redis_rate_limit":  redisRateLimit,
	"redislock_lock":    redislockLock,
	"redistore_session": redistoreSession,
	"redsync_mutex":     redsyncMutex,
	"rueidis_cache":     rueidisCache,
	"rueidis_strings":   rueidisStrings,
	"rueidis_cluster":   rueidisCluster,
	"ulule_limiter":     ululeLimiter,
	"valkey_go_strings": valkeyGoStrings,
}

func main() {
	if len(os.Args) != 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: libraries NAME, the name of a file of this folder")
		os.Exit(2)
	}
	programs[os.Args[1]]()
}

// must gives the value of a call that may not fail.
func must[T any](value T, err error) T {
	works(err)
	return value
}

func works(err error) {
	if err != nil {
		panic(err)
	}
}

// same ends the program if what came is not what was expected.
func same(came, expected any) {
	if !reflect.DeepEqual(came, expected) {
		panic(fmt.Sprintf("AssertionError: %v came, not %v", came, expected))
	}
}
