package main

import "github.com/IBM/sarama"

// addOffset makes the offset after a message part of the producer's transaction. The group refuses it if the session is
// over. (sarama_1_45/ has this file for a Sarama whose transactions do not name the session.)
func addOffset(
	producer sarama.AsyncProducer, session sarama.ConsumerGroupSession, group string, message *sarama.ConsumerMessage,
) error {
	member := sarama.NewConsumerGroupMetadataFromSession(session, group, nil)
	return producer.AddMessageToTxnWithGroupMetadata(message, member, nil)
}
