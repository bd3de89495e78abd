package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	copiers     = 2
	batchMax    = 50
	feedEvery   = 20 * time.Millisecond
	tellEvery   = 200 * time.Millisecond
	lookedAfter = 100 * time.Millisecond
)

// outlive feeds a topic with numbers, through an idempotent producer, and copies it exactly once into another one,
// in a group of transactional members. When its standard input ends it feeds no more, tells when every number has
// its outcome, and goes on copying until it is killed.
func outlive(_ context.Context, given arguments) {
	ctx := context.Background()
	target, group := given.rest[0], given.rest[1]
	partitions := must(strconv.Atoi(given.rest[2]))
	progress := newProgress()
	for n := range copiers {
		go copyForever(ctx, given, target, group, fmt.Sprintf("%s-%d", group, n), progress)
	}
	go feed(ctx, given, partitions, progress)
	for {
		tell(progress.told())
		time.Sleep(tellEvery)
	}
}

// feed writes 0, 1, 2 ... to the partitions in turn.
func feed(ctx context.Context, given arguments, partitions int, progress *progress) {
	producer := client(given, kgo.DefaultProduceTopic(given.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	stopping := make(chan struct{})
	go func() {
		must(io.Copy(io.Discard, os.Stdin))
		close(stopping)
	}()
	tick := time.NewTicker(feedEvery)
	for number := 0; ; {
		select {
		case <-stopping:
			check(producer.Flush(ctx))
			progress.fed.Store(true)
			return
		case <-tick.C:
		}
		for range partitions {
			record := &kgo.Record{Value: fmt.Append(nil, number), Partition: int32(number % partitions)}
			number++
			producer.Produce(ctx, record, func(record *kgo.Record, err error) {
				progress.outcome(string(record.Value), err)
			})
		}
	}
}

// copyForever makes its session anew after an error that the session cannot go on from.
func copyForever(ctx context.Context, given arguments, target, group, id string, progress *progress) {
	for {
		session := must(kgo.NewGroupTransactSession(
			kgo.SeedBrokers(given.bootstrap...),
			kgo.MetadataMinAge(100*time.Millisecond),
			kgo.FetchMaxWait(200*time.Millisecond),
			kgo.TransactionalID(id),
			kgo.TransactionTimeout(20*time.Second),
			kgo.ConsumerGroup(group),
			kgo.ConsumeTopics(given.topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.SessionTimeout(4*time.Second),
			kgo.HeartbeatInterval(500*time.Millisecond),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.RequireStableFetchOffsets(),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
		))
		for {
			if err := copySome(ctx, session, target, id, progress); err != nil {
				progress.renewed(err)
				break
			}
		}
		progress.during(id, "close", session.CloseAllowingRebalance)
	}
}

// copySome copies what one poll returns, in a transaction, and returns an error that ends the session.
func copySome(ctx context.Context, session *kgo.GroupTransactSession, target, id string, progress *progress) error {
	looking, stop := context.WithTimeout(ctx, lookedAfter)
	fetches := session.PollRecords(looking, batchMax)
	stop()
	fetches.EachError(func(_ string, _ int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) {
			progress.met(err)
		}
	})
	if fetches.NumRecords() == 0 {
		return nil
	}
	if err := session.Begin(); err != nil {
		return err
	}
	var refused atomic.Bool
	fetches.EachRecord(func(record *kgo.Record) {
		copied := &kgo.Record{Topic: target, Partition: record.Partition, Value: record.Value}
		session.Produce(ctx, copied, func(_ *kgo.Record, err error) {
			if err != nil {
				refused.Store(true)
				progress.met(err)
			}
		})
	})
	progress.during(id, "flush", func() { check(session.Client().Flush(ctx)) })
	var committed bool
	var err error
	progress.during(id, "end", func() {
		committed, err = session.End(ctx, kgo.TransactionEndTry(!refused.Load()))
	})
	if err == nil {
		progress.ended(id, committed)
	}
	return err
}
