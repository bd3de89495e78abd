package main

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

const commitsEach = 5

// member is one of a group that prints messages, and commits what it has printed: all, or five of a partition.
type member struct{ topic string }

// join prints "holds [PARTITIONS]" as often as the group is balanced, and "PARTITION VALUE" for each record, until it is
// killed.
func join(bootstrap []string, arguments []string) {
	topic, group, name := arguments[0], arguments[1], arguments[2]
	config := settings()
	config.ClientID = name
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	for {
		joined, err := sarama.NewConsumerGroup(bootstrap, group, config)
		for err == nil {
			err = joined.Consume(context.Background(), []string{topic}, &member{topic})
		}
		fmt.Println("left", err)
		if joined != nil {
			_ = joined.Close()
		}
		time.Sleep(lookedAfter)
	}
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	fmt.Println("holds", session.Claims()[m.topic])
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for printed := 1; ; printed++ {
		select {
		case <-session.Context().Done():
			return nil
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			fmt.Println(message.Partition, string(message.Value))
			session.MarkMessage(message, "")
			if len(claim.Messages()) == 0 || printed%commitsEach == 0 {
				session.Commit()
			}
		}
	}
}
