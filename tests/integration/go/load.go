package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// load sends numbers at a steady rate and reads them in a group until its standard input ends, then waits for
// the outcome of all and for the reader to have everything that was acknowledged. It tells how far it is.
func load(ctx context.Context, given arguments) {
	rate := must(strconv.Atoi(given.rest[0]))
	producer := client(given, kgo.DefaultProduceTopic(given.topic), kgo.RecordDeliveryTimeout(30*time.Second))
	reader := join(ctx, given, "g-"+given.topic, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	stopping := make(chan struct{})
	go func() {
		must(io.Copy(io.Discard, os.Stdin))
		close(stopping)
	}()

	var lock sync.Mutex
	acknowledged, failed := map[string]bool{}, []string{}
	report := func() {
		lock.Lock()
		defer lock.Unlock()
		tell(map[string]any{"acknowledged": len(acknowledged), "failed": failed, "read": len(reader.seen())})
	}
	started, number := time.Now(), 0
	tick := time.NewTicker(20 * time.Millisecond)
	for running := true; running; {
		select {
		case <-stopping:
			running = false
		case <-tick.C:
		}
		for ; number < int(time.Since(started).Seconds()*float64(rate)); number++ {
			producer.Produce(ctx, kgo.StringRecord(fmt.Sprint(number)), func(record *kgo.Record, err error) {
				lock.Lock()
				defer lock.Unlock()
				if err != nil {
					failed = append(failed, err.Error())
				} else {
					acknowledged[string(record.Value)] = true
				}
			})
		}
		report()
	}
	check(producer.Flush(ctx))
	until(ctx, "the reader to reach the end", func() bool {
		seen := reader.seen()
		for value := range acknowledged {
			if seen[value] == 0 {
				return false
			}
		}
		return true
	})
	reader.leave(ctx)
	report()
	producer.Close()
}
