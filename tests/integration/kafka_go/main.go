// Kafka_go drives segmentio/kafka-go through what the tests of tests/programs ask for.
//
//	kafka_go load   <bootstrap> <topic> <codec>...
//	kafka_go read   <bootstrap> <topic> <count>
//	kafka_go member <bootstrap> <topic> <group> <name>
//	kafka_go admin  <bootstrap> <topic> <group>
//
// What each prints stands beside it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	writeEvery = 5 * time.Millisecond
	toldEach   = 50
	patience   = 1000 // attempts, which are at most 200 ms apart
)

func main() {
	verbs := map[string]func(bootstrap []string, arguments []string){
		"load": load, "read": read, "member": join, "admin": administer,
	}
	if len(os.Args) < 5 || verbs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kafka_go load|read|member|admin <bootstrap> <topic> ...")
		os.Exit(2)
	}
	verbs[os.Args[1]](strings.Split(os.Args[2], ","), os.Args[3:])
}

// load writes 0, 1, 2 ... until SIGTERM, through a writer for each codec, which has the partition of the codec's place
// in the list. It prints "acknowledged N" now and then, "failed" with each error, and "done N" at its end.
func load(bootstrap []string, arguments []string) {
	topic, codecs := arguments[0], arguments[1:]
	var told tally
	writers := []*kafka.Writer{}
	for partition, codec := range codecs {
		var compression kafka.Compression
		if codec != "none" {
			check(compression.UnmarshalText([]byte(codec)))
		}
		writers = append(writers, &kafka.Writer{
			Addr: kafka.TCP(bootstrap...), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: compression,
			Balancer:  kafka.BalancerFunc(func(kafka.Message, ...int) int { return partition }),
			BatchSize: 5, BatchTimeout: 20 * time.Millisecond, MaxAttempts: patience,
			WriteBackoffMin: 50 * time.Millisecond, WriteBackoffMax: 200 * time.Millisecond,
			Async: true, Completion: told.completed,
		})
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	tick := time.NewTicker(writeEvery)
	sent := 0
	for stopped := false; !stopped; {
		select {
		case <-ended:
			stopped = true
		case <-tick.C:
			check(writers[sent%len(codecs)].WriteMessages(context.Background(), kafka.Message{
				Key: []byte(codecs[sent%len(codecs)]), Value: []byte(strconv.Itoa(sent)), Time: time.Now(),
			}))
			sent++
		}
	}
	for _, writer := range writers {
		check(writer.Close())
	}
	fmt.Println("done", sent)
}

// tally counts outcomes, and prints them.
type tally struct {
	lock  sync.Mutex
	count int
}

func (t *tally) completed(messages []kafka.Message, err error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if err != nil {
		fmt.Println("failed", err)
		return
	}
	before := t.count
	if t.count += len(messages); t.count/toldEach > before/toldEach {
		fmt.Println("acknowledged", t.count)
	}
}

// read prints "PARTITION VALUE" for each record of a topic from its beginning, until there were as many as are asked for.
func read(bootstrap []string, arguments []string) {
	topic, wanted := arguments[0], must(strconv.Atoi(arguments[1]))
	client := &kafka.Client{Addr: kafka.TCP(bootstrap...)}
	found := must(client.Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{topic}}))
	messages := make(chan kafka.Message)
	for _, partition := range found.Topics[0].Partitions {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: bootstrap, Topic: topic, Partition: partition.ID, MaxWait: 200 * time.Millisecond,
		})
		go func() {
			for {
				messages <- must(reader.ReadMessage(context.Background()))
			}
		}()
	}
	for range wanted {
		message := <-messages
		fmt.Println(message.Partition, string(message.Value))
	}
}

// join prints "holds [PARTITIONS]" as often as the group is balanced, "PARTITION VALUE" for each record, and commits it
// then, until it is killed.
func join(bootstrap []string, arguments []string) {
	topic, group := arguments[0], arguments[1]
	ctx := context.Background()
	joined := must(kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: bootstrap, Topics: []string{topic}, StartOffset: kafka.FirstOffset,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 500 * time.Millisecond, JoinGroupBackoff: 200 * time.Millisecond,
	}))
	for {
		generation, err := joined.Next(ctx)
		if err != nil {
			fmt.Println("left", err)
			continue
		}
		held := []int{}
		for _, assigned := range generation.Assignments[topic] {
			held = append(held, assigned.ID)
			generation.Start(func(ctx context.Context) { follow(ctx, bootstrap, topic, generation, assigned) })
		}
		fmt.Println("holds", held)
	}
}

// follow reads a partition until the group is balanced anew.
func follow(
	ctx context.Context, bootstrap []string, topic string, generation *kafka.Generation, from kafka.PartitionAssignment,
) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: bootstrap, Topic: topic, Partition: from.ID, MaxWait: 200 * time.Millisecond,
	})
	defer reader.Close()
	check(reader.SetOffset(from.Offset))
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return
		}
		fmt.Println(message.Partition, string(message.Value))
		next := map[string]map[int]int64{topic: {message.Partition: message.Offset + 1}}
		if err := generation.CommitOffsets(next); err != nil {
			fmt.Println("not committed", err)
			return
		}
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
