package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// none leaves a record to what the client does with the next poll, or with MarkAcks: it accepts it.
	none kgo.AckStatus = 0
	// rejectBelow is the number below which records are rejected in the first stage, at their first delivery.
	rejectBelow = 50
)

// worker is a member of a share group, by what it does with a record.
type worker struct {
	decide func(number int, delivery int32) kgo.AckStatus
	// marks says that it accepts what is left of a poll with MarkAcks.
	marks bool
	// polls is the number of polls with records after which it leaves; 0 if it stays.
	polls   int
	options []kgo.Opt
}

var (
	implicit = worker{decide: func(int, int32) kgo.AckStatus { return none }}
	explicit = worker{decide: func(int, int32) kgo.AckStatus { return kgo.AckAccept }}
	picky    = worker{decide: func(number int, delivery int32) kgo.AckStatus {
		if number%10 == 0 && delivery == 1 {
			return kgo.AckRelease
		}
		return kgo.AckAccept
	}}
	marking = worker{marks: true, decide: func(number int, delivery int32) kgo.AckStatus {
		if number%5 == 0 && delivery == 1 {
			return kgo.AckRelease
		}
		return none
	}}
	lazy = worker{polls: 5, decide: func(_ int, delivery int32) kgo.AckStatus {
		if delivery < 3 {
			return kgo.AckRelease
		}
		return kgo.AckAccept
	}}
	// strict has polls of few records, so that its fetches take parts of batches.
	strict   = worker{decide: explicit.decide, options: []kgo.Opt{kgo.ShareMaxRecords(7), kgo.ShareMaxRecordsStrict()}}
	leaving  = worker{decide: implicit.decide, polls: 2}
	refusing = worker{decide: func(number int, _ int32) kgo.AckStatus {
		if number < rejectBelow {
			return kgo.AckReject
		}
		return kgo.AckAccept
	}}
)

// stage is a share group that copies numbers from its topics to the next ones.
type stage struct {
	given    arguments
	group    string
	from, to []string

	lock      sync.Mutex
	accepted  map[int]int
	rejected  map[int]bool
	delivered int32
	released  int
	errors    map[string]int
}

func newStage(given arguments, group string, from, to []string) *stage {
	return &stage{
		given: given, group: group, from: from, to: to,
		accepted: map[int]int{}, rejected: map[int]bool{}, errors: map[string]int{},
	}
}

// work is the life of a member.
func (s *stage) work(ctx context.Context, w worker) {
	options := []kgo.Opt{
		kgo.ShareGroup(s.group), kgo.ConsumeTopics(s.from...), kgo.ShareMaxRecords(50),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) { s.met(results.Error()) }),
	}
	cl := client(s.given, append(options, w.options...)...)
	defer cl.Close()
	for polls := 0; ctx.Err() == nil && (w.polls == 0 || polls < w.polls); {
		patience, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		fetches := cl.PollFetches(patience)
		cancel()
		fetches.EachError(func(_ string, _ int32, err error) { s.met(err) })
		if records := fetches.Records(); len(records) > 0 {
			polls++
			s.handle(cl, w, records)
		}
	}
	cl.MarkAcks(kgo.AckAccept) // a client that is closed releases what it would have accepted with the next poll
}

func (s *stage) met(err error) {
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.errors[err.Error()]++
}

// handle writes what it keeps before it accepts it, and flushes the acknowledgements.
func (s *stage) handle(cl *kgo.Client, w worker, records []*kgo.Record) {
	ctx := context.Background()
	kept := []*kgo.Record{}
	statuses := map[*kgo.Record]kgo.AckStatus{}
	for _, record := range records {
		number := must(strconv.Atoi(string(record.Value)))
		status := w.decide(number, record.DeliveryCount())
		statuses[record] = status
		if status == none || status == kgo.AckAccept {
			kept = append(kept, &kgo.Record{Topic: s.to[number%len(s.to)], Value: record.Value})
		}
		s.note(number, status, record.DeliveryCount())
	}
	check(cl.ProduceSync(ctx, kept...).FirstErr())
	for record, status := range statuses {
		if status != none {
			record.Ack(status)
		}
	}
	if w.marks {
		cl.MarkAcks(kgo.AckAccept)
	}
	check(cl.FlushAcks(ctx))
}

func (s *stage) note(number int, status kgo.AckStatus, delivery int32) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.delivered = max(s.delivered, delivery)
	switch status {
	case kgo.AckReject:
		s.rejected[number] = true
	case kgo.AckRelease:
		s.released++
	default:
		s.accepted[number]++
	}
}

func (s *stage) finished() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.accepted) + len(s.rejected)
}

func (s *stage) told() map[string]any {
	s.lock.Lock()
	defer s.lock.Unlock()
	repeated := 0
	for _, times := range s.accepted {
		repeated += times - 1
	}
	return map[string]any{
		"accepted": slices.Sorted(maps.Keys(s.accepted)),
		"rejected": append([]int{}, slices.Sorted(maps.Keys(s.rejected))...),
		"repeated": repeated, "released": s.released, "delivered": s.delivered, "errors": s.errors,
	}
}

// stages copies numbers through two share groups. Members of each kind work on a stage, and some come and go.
//
//	franz stages <bootstrap> <topics> <groups> <middle topics> <last topics> <count>, names with commas between
func stages(ctx context.Context, given arguments) {
	ctx, stop := context.WithCancel(ctx)
	groups, middle, last := split(given.rest[0]), split(given.rest[1]), split(given.rest[2])
	count := must(strconv.Atoi(given.rest[3]))
	topics := split(given.topic)
	first, second := newStage(given, groups[0], topics, middle), newStage(given, groups[1], middle, last)
	var working sync.WaitGroup
	employ := func(ctx context.Context, s *stage, workers ...worker) {
		for _, w := range workers {
			working.Go(func() { s.work(ctx, w) })
		}
	}
	refused, end := context.WithCancel(ctx)
	employ(refused, first, refusing)
	producer := client(given, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	defer producer.Close()
	write := func(from, to int) {
		for number := from; number < to; number++ {
			record := &kgo.Record{Topic: topics[number%len(topics)], Value: strconv.AppendInt(nil, int64(number), 10)}
			producer.Produce(ctx, record, func(_ *kgo.Record, err error) { check(err) })
		}
		check(producer.Flush(ctx))
	}
	write(0, 2*rejectBelow)
	until(ctx, "records to be rejected", func() bool { return first.finished() == 2*rejectBelow })
	end()
	employ(ctx, first, implicit, picky, lazy, leaving, strict)
	employ(ctx, second, explicit, marking, lazy, leaving)
	write(2*rejectBelow, count)
	until(ctx, "a part of the second stage", func() bool { return second.finished() > count/4 })
	employ(ctx, second, implicit, leaving)
	until(ctx, "the end of the first stage", func() bool { return first.finished() == count })
	until(ctx, "the end of the second stage", func() bool { return second.finished() == count-rejectBelow })
	stop()
	working.Wait()
	tell(map[string]any{"first": first.told(), "second": second.told()})
}

func split(names string) []string { return strings.Split(names, ",") }

// accepted polls until it has `count` records, accepts them, and closes the client without another poll.
func accepted(ctx context.Context, given arguments) {
	count := must(strconv.Atoi(given.rest[1]))
	cl := client(given, kgo.ShareGroup(given.rest[0]), kgo.ConsumeTopics(given.topic))
	deliveries := []int32{}
	for len(deliveries) < count {
		fetches := cl.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) { check(err) })
		fetches.EachRecord(func(record *kgo.Record) {
			deliveries = append(deliveries, record.DeliveryCount())
			record.Ack(kgo.AckAccept)
		})
	}
	cl.Close()
	tell(map[string]any{"deliveries": deliveries})
}

// shareOffsets sets the start offset of a group without members, describes it, and removes it.
func shareOffsets(ctx context.Context, given arguments) {
	group := given.rest[0]
	cl := client(given)
	defer cl.Close()
	admin := kadm.NewClient(cl)
	described := func() []int64 {
		found := []int64{}
		groups := must(admin.DescribeShareGroupOffsets(ctx, group))
		check(groups.Error())
		for _, offset := range groups[group].Offsets.Sorted() {
			check(offset.Err)
			found = append(found, int64(offset.Partition), offset.StartOffset, offset.Lag)
		}
		return found
	}
	told := map[string]any{}
	offsets := kadm.Offsets{}
	offsets.AddOffset(given.topic, 0, 8, -1)
	check(must(admin.AlterShareGroupOffsets(ctx, group, offsets)).Error())
	told["altered"] = described()
	told["listed"] = must(admin.ListGroups(ctx))[group].State
	check(must(admin.DeleteShareGroupOffsets(ctx, group, given.topic)).Error())
	told["deleted"] = described()
	check(must(admin.DeleteGroup(ctx, group)).Err)
	_, err := admin.DeleteGroup(ctx, group)
	told["again"] = err.Error()
	tell(told)
}
