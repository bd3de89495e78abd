package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

const (
	writeEvery = 5 * time.Millisecond
	toldEach   = 50
)

// load writes 0, 1, 2 ... until SIGTERM, through an idempotent producer for each codec, which has the partition of the
// codec's place in the list. It prints "acknowledged N" now and then, "failed VALUE WHY" with each error, and "done N" at its end.
func load(bootstrap []string, arguments []string) {
	topic, codecs := arguments[0], arguments[1:]
	var told tally
	producers := []sarama.AsyncProducer{}
	var answers sync.WaitGroup
	for _, codec := range codecs {
		config := writing(settings())
		check(config.Producer.Compression.UnmarshalText([]byte(codec)))
		config.Producer.Flush.Messages = 5
		config.Producer.Flush.Frequency = 20 * time.Millisecond
		producer := must(sarama.NewAsyncProducer(bootstrap, config))
		producers = append(producers, producer)
		answers.Go(func() {
			for range producer.Successes() {
				told.acknowledged()
			}
		})
		answers.Go(func() {
			for failed := range producer.Errors() {
				told.failed(failed)
			}
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
			partition := sent % len(codecs)
			producers[partition].Input() <- &sarama.ProducerMessage{
				Topic: topic, Partition: int32(partition), Timestamp: time.Now(),
				Key: sarama.StringEncoder(codecs[partition]), Value: sarama.StringEncoder(strconv.Itoa(sent)),
			}
			sent++
		}
	}
	for _, producer := range producers {
		producer.AsyncClose()
	}
	answers.Wait()
	fmt.Println("done", sent)
}

// tally counts outcomes, and prints them.
type tally struct {
	lock  sync.Mutex
	count int
}

func (t *tally) acknowledged() {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.count++; t.count%toldEach == 0 {
		fmt.Println("acknowledged", t.count)
	}
}

func (t *tally) failed(failed *sarama.ProducerError) {
	t.lock.Lock()
	defer t.lock.Unlock()
	fmt.Println("failed", string(must(failed.Msg.Value.Encode())), failed.Err)
}

// read prints "PARTITION VALUE" for each record of a topic from its beginning, until there were as many as are asked for.
func read(bootstrap []string, arguments []string) {
	topic, wanted := arguments[0], must(strconv.Atoi(arguments[1]))
	config := settings()
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	consumer := must(sarama.NewConsumer(bootstrap, config))
	messages := make(chan *sarama.ConsumerMessage)
	for _, partition := range must(consumer.Partitions(topic)) {
		one := must(consumer.ConsumePartition(topic, partition, sarama.OffsetOldest))
		go func() {
			for message := range one.Messages() {
				messages <- message
			}
		}()
	}
	for range wanted {
		message := <-messages
		fmt.Println(message.Partition, string(message.Value))
	}
}
