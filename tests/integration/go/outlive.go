package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
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

// progress is what the feeder and the copiers have come to.
type progress struct {
	fed atomic.Bool

	lock         sync.Mutex
	acknowledged int
	failed       []string
	commits      map[string]int
	aborts       int
	renewals     int
	errors       map[string]int
	longest      map[string]float64
	doing        map[string]string
	since        map[string]time.Time
}

func newProgress() *progress {
	return &progress{
		failed: []string{}, commits: map[string]int{}, errors: map[string]int{},
		longest: map[string]float64{}, doing: map[string]string{}, since: map[string]time.Time{},
	}
}

func (p *progress) outcome(value string, err error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if err == nil {
		p.acknowledged++
	} else {
		p.failed = append(p.failed, value+": "+err.Error())
	}
}

func (p *progress) met(err error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.errors[err.Error()]++
}

func (p *progress) renewed(err error) {
	p.met(err)
	p.lock.Lock()
	defer p.lock.Unlock()
	p.renewals++
}

func (p *progress) ended(id string, committed bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if committed {
		p.commits[id]++
	} else {
		p.aborts++
	}
}

// during notes how long a call takes.
func (p *progress) during(id, what string, call func()) {
	p.lock.Lock()
	p.doing[id], p.since[id] = what, time.Now()
	p.lock.Unlock()
	call()
	p.lock.Lock()
	defer p.lock.Unlock()
	p.note(id)
	delete(p.doing, id)
}

func (p *progress) note(id string) {
	if what, busy := p.doing[id]; busy {
		p.longest[what] = max(p.longest[what], time.Since(p.since[id]).Seconds())
	}
}

func (p *progress) told() map[string]any {
	p.lock.Lock()
	defer p.lock.Unlock()
	for id := range p.doing {
		p.note(id)
	}
	return map[string]any{
		"fed": p.fed.Load(), "acknowledged": p.acknowledged, "failed": append([]string{}, p.failed...),
		"commits": copyOf(p.commits), "aborts": p.aborts, "renewals": p.renewals,
		"errors": copyOf(p.errors), "longest_s": copyOf(p.longest), "doing": copyOf(p.doing),
	}
}

func copyOf[K comparable, V any](found map[K]V) map[K]V {
	copied := map[K]V{}
	for key, value := range found {
		copied[key] = value
	}
	return copied
}
