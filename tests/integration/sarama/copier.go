package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

const (
	batchMax    = 50
	lookedAfter = 100 * time.Millisecond
)

// copier is a member of the group; each partition that it holds has a transactional producer of its own, under an id
// that the partition's next owner takes over.
type copier struct {
	bootstrap     []string
	topic, target string
	group, name   string
	progress      *progress
}

func (c *copier) run() {
	config := settings()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 4 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	for {
		group, err := sarama.NewConsumerGroup(c.bootstrap, c.group, config)
		for err == nil {
			if err = group.Consume(context.Background(), []string{c.topic}, c); err != nil {
				c.progress.renewed(err)
			}
		}
		if group != nil {
			c.progress.during(c.name, "close", func() { _ = group.Close() })
		}
		time.Sleep(lookedAfter)
	}
}

func (c *copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim copies a partition until it is taken away, or a transaction fails: the session that follows begins where
// the last committed one ended.
func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	who := fmt.Sprintf("%s/%d", c.name, claim.Partition())
	config := writing(settings())
	config.Producer.Transaction.ID = fmt.Sprintf("%s-%d", c.group, claim.Partition())
	config.Producer.Transaction.Timeout = 20 * time.Second
	var producer sarama.AsyncProducer
	var err error
	c.progress.during(who, "new", func() { producer, err = sarama.NewAsyncProducer(c.bootstrap, config) })
	if err != nil {
		c.progress.met(err)
		return nil
	}
	answers := make(chan error, batchMax)
	go func() {
		for range producer.Successes() {
			answers <- nil
		}
	}()
	go func() {
		for failed := range producer.Errors() {
			answers <- failed.Err
		}
	}()
	defer c.progress.during(who, "close producer", producer.AsyncClose)
	for {
		messages, open := take(session, claim)
		if len(messages) > 0 {
			if err := c.copy(who, session, producer, messages, answers); err != nil {
				c.progress.met(err)
				c.abort(who, producer)
				return nil
			}
		}
		if !open {
			return nil
		}
	}
}

// take returns what there is soon, and whether there may be more.
func take(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) ([]*sarama.ConsumerMessage, bool) {
	messages, late := []*sarama.ConsumerMessage{}, time.After(lookedAfter)
	for len(messages) < batchMax {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return messages, false
			}
			messages = append(messages, message)
		case <-session.Context().Done():
			return messages, false
		case <-late:
			return messages, true
		}
	}
	return messages, true
}

// copy writes messages and their offset in one transaction.
func (c *copier) copy(
	who string,
	session sarama.ConsumerGroupSession,
	producer sarama.AsyncProducer,
	messages []*sarama.ConsumerMessage,
	answers chan error,
) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	var failures []error
	c.progress.during(who, "produce", func() {
		for _, message := range messages {
			producer.Input() <- &sarama.ProducerMessage{
				Topic: c.target, Partition: message.Partition, Value: sarama.ByteEncoder(message.Value),
			}
		}
		for range messages {
			failures = append(failures, <-answers)
		}
	})
	if err := errors.Join(failures...); err != nil {
		return err
	}
	if err := addOffset(producer, session, c.group, messages[len(messages)-1]); err != nil {
		return err
	}
	var err error
	c.progress.during(who, "commit", func() { err = producer.CommitTxn() })
	if err == nil {
		c.progress.ended(c.name, true)
	}
	return err
}

// abort ends what is open, unless the producer can do no more: then its id's next user does.
func (c *copier) abort(who string, producer sarama.AsyncProducer) {
	if producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
		return
	}
	c.progress.during(who, "abort", func() { c.progress.met(producer.AbortTxn()) })
	c.progress.ended(c.name, false)
}
