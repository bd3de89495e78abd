package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/IBM/sarama"
)

const feedEvery = 20 * time.Millisecond

// feed writes 0, 1, 2 ... to the partitions in turn.
func feed(bootstrap []string, topic string, partitions int, progress *progress) {
	producer := must(sarama.NewAsyncProducer(bootstrap, writing(settings())))
	stopping := make(chan struct{})
	go func() {
		must(io.Copy(io.Discard, os.Stdin))
		close(stopping)
	}()
	answered := make(chan struct{}, 1)
	outcome := func(message *sarama.ProducerMessage, err error) {
		progress.outcome(fmt.Sprint(message.Metadata), err)
		answered <- struct{}{}
	}
	done := make(chan struct{})
	sent := make(chan int, 1)
	go func() {
		defer close(done)
		all := -1
		for count := 0; count != all; {
			select {
			case all = <-sent:
			case <-answered:
				count++
			}
		}
	}()
	go func() {
		for message := range producer.Successes() {
			outcome(message, nil)
		}
	}()
	go func() {
		for failed := range producer.Errors() {
			outcome(failed.Msg, failed.Err)
		}
	}()
	tick := time.NewTicker(feedEvery)
	for number := 0; ; {
		select {
		case <-stopping:
			sent <- number
			<-done
			progress.fed.Store(true)
			return
		case <-tick.C:
		}
		for range partitions {
			producer.Input() <- &sarama.ProducerMessage{
				Topic: topic, Partition: int32(number % partitions), Metadata: number,
				Value: sarama.StringEncoder(fmt.Sprint(number)),
			}
			number++
		}
	}
}
