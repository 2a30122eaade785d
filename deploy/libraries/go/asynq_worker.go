// github.com/hibiken/asynq: a queue and its server
package main

import (
	"context"
	"time"

	"github.com/hibiken/asynq"
)

func asynqWorker() {
	redis := asynq.RedisClientOpt{Addr: address}
	client := asynq.NewClient(redis)
	must(client.Enqueue(asynq.NewTask("price", []byte("6"))))
	done := make(chan string, 1)
	server := asynq.NewServer(redis, asynq.Config{Concurrency: 1, TaskCheckInterval: 100 * time.Millisecond})
	works(server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		done <- string(task.Payload())
		return nil
	})))
	same(<-done, "6")
	server.Shutdown()
}
