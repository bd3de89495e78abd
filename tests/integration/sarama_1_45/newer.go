package main

import "github.com/IBM/sarama"

// addOffset makes the offset after a message part of the producer's transaction, which does not name the session.
func addOffset(
	producer sarama.AsyncProducer, _ sarama.ConsumerGroupSession, group string, message *sarama.ConsumerMessage,
) error {
	return producer.AddMessageToTxn(message, group, nil)
}
