package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// member is a consumer in a group with what it holds, has given back and has read.
type member struct {
	client *kgo.Client
	ended  chan struct{}
	stop   context.CancelFunc

	lock    sync.Mutex
	held    map[int32]bool
	revoked []int32
	read    map[string]int
}

func join(ctx context.Context, given arguments, name string, options ...kgo.Opt) *member {
	ctx, stop := context.WithCancel(ctx)
	m := &member{ended: make(chan struct{}), stop: stop, held: map[int32]bool{}, read: map[string]int{}}
	note := func(held bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(ctx context.Context, cl *kgo.Client, partitions map[string][]int32) {
			if !held && ctx.Err() == nil {
				_ = cl.CommitUncommittedOffsets(ctx) // what fails here is read again, and counted
			}
			m.lock.Lock()
			defer m.lock.Unlock()
			for _, partition := range partitions[given.topic] {
				if m.held[partition] = held; !held {
					m.revoked = append(m.revoked, partition)
					delete(m.held, partition)
				}
			}
		}
	}
	m.client = client(given, append(options,
		kgo.ConsumerGroup(name),
		kgo.ConsumeTopics(given.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(note(true)),
		kgo.OnPartitionsRevoked(note(false)),
		kgo.OnPartitionsLost(note(false)))...)
	go m.poll(ctx)
	return m
}

func (m *member) poll(ctx context.Context) {
	defer close(m.ended)
	for ctx.Err() == nil {
		fetches := m.client.PollFetches(ctx)
		if fetches.IsClientClosed() {
			return
		}
		m.lock.Lock()
		fetches.EachRecord(func(record *kgo.Record) { m.read[string(record.Value)]++ })
		m.lock.Unlock()
	}
}

func (m *member) holds() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	held := []int32{}
	for partition := range m.held {
		held = append(held, partition)
	}
	slices.Sort(held)
	return held
}

func (m *member) seen() map[string]int {
	m.lock.Lock()
	defer m.lock.Unlock()
	seen := map[string]int{}
	for value, times := range m.read {
		seen[value] = times
	}
	return seen
}

// leave commits what was read and leaves the group.
func (m *member) leave(ctx context.Context) {
	m.stop()
	<-m.ended
	check(m.client.CommitUncommittedOffsets(ctx))
	m.client.Close()
}

// group lets a second member join and leave; the group speaks the protocol that the third argument names.
func group(ctx context.Context, given arguments) {
	name, partitions := given.rest[0], 4
	options := []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}
	if given.rest[1] == "consumer" {
		options = []kgo.Opt{kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()}
	}
	producer := client(given, kgo.DefaultProduceTopic(given.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	admin := kadm.NewClient(producer)
	sent := 0
	send := func() {
		for range 100 {
			record := &kgo.Record{Value: fmt.Appendf(nil, "%d", sent), Partition: int32(sent % partitions)}
			check(producer.ProduceSync(ctx, record).FirstErr())
			sent++
		}
	}
	send()
	first := join(ctx, given, name, options...)
	until(ctx, "the first member to hold all", func() bool { return len(first.holds()) == partitions })
	until(ctx, "the first member to read", func() bool { return len(first.seen()) == sent })
	second := join(ctx, given, name, options...)
	until(ctx, "two members to share", func() bool {
		return len(first.holds()) == partitions/2 && len(second.holds()) == partitions/2
	})
	send()
	both := func() map[string]int {
		all := first.seen()
		for value, times := range second.seen() {
			all[value] += times
		}
		return all
	}
	until(ctx, "both to read", func() bool { return len(both()) == sent })
	told := map[string]any{"first": first.holds(), "second": second.holds(), "revoked": first.revoked}
	told["described"] = describe(ctx, admin, name, given.rest[1])
	second.leave(ctx)
	until(ctx, "the first member to hold all again", func() bool { return len(first.holds()) == partitions })
	send()
	until(ctx, "the first member to read the rest", func() bool { return len(both()) == sent })
	repeated := 0
	all := both()
	for _, times := range all {
		repeated += times - 1
	}
	first.leave(ctx)
	committed := map[int32]int64{}
	must(admin.FetchOffsets(ctx, name)).Each(func(offset kadm.OffsetResponse) {
		check(offset.Err)
		committed[offset.Partition] = offset.At
	})
	told["sent"], told["read"], told["repeated"], told["committed"] = sent, len(all), repeated, committed
	told["lag"] = must(admin.Lag(ctx, name))[name].Lag.Total()
	deleted := must(admin.DeleteGroup(ctx, name))
	check(deleted.Err)
	tell(told)
}

// describe tells state, assignor and number of members.
func describe(ctx context.Context, admin *kadm.Client, name, protocol string) []any {
	if protocol == "consumer" {
		found := must(admin.DescribeConsumerGroups(ctx, name))[name]
		check(found.Err)
		return []any{found.State, found.AssignorName, len(found.Members)}
	}
	found := must(admin.DescribeGroups(ctx, name))[name]
	check(found.Err)
	return []any{found.State, found.Protocol, len(found.Members)}
}
