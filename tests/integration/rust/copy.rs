use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::{PATIENCE, settings, settings_of_member};

const BATCH_MAX: usize = 50;
const BATCH_WITHIN: Duration = Duration::from_millis(100);

/// Copies a topic exactly once, as a member of a group with a transactional id of its own. It prints how many
/// transactions it has committed, as lines of JSON, and "met" with each error. After one it begins anew: with its
/// transactional id it aborts what was open, and reads on where the group has committed.
pub fn copy_for_ever(bootstrap: &str, topic: &str, target: &str, group: &str, name: &str) {
    let mut commits = 0;
    loop {
        if let Err(error) = copy(bootstrap, topic, target, group, name, &mut commits) {
            println!("met {error}");
        }
    }
}

fn copy(
    bootstrap: &str, topic: &str, target: &str, group: &str, name: &str, commits: &mut usize,
) -> KafkaResult<()> {
    let producer: BaseProducer = settings(bootstrap)
        .set("transactional.id", format!("{group}-{name}"))
        .set("transaction.timeout.ms", "20000")
        .create()?;
    producer.init_transactions(PATIENCE)?;
    let consumer: BaseConsumer = settings_of_member(bootstrap, group, name).create()?;
    consumer.subscribe(&[topic])?;
    loop {
        let messages = take(&consumer)?;
        if messages.is_empty() {
            continue;
        }
        producer.begin_transaction()?;
        let mut next = HashMap::new();
        for message in &messages {
            let record = BaseRecord::<(), [u8]>::to(target)
                .partition(message.partition())
                .payload(message.payload().expect("a value"));
            producer.send(record).map_err(|(error, _)| error)?;
            next.insert((topic.to_owned(), message.partition()), Offset::Offset(message.offset() + 1));
        }
        let offsets = TopicPartitionList::from_topic_map(&next)?;
        let member = consumer.group_metadata().expect("a member of a group");
        producer.send_offsets_to_transaction(&offsets, &member, PATIENCE)?;
        producer.commit_transaction(PATIENCE)?;
        *commits += 1;
        println!("{{\"commits\": {{\"{name}\": {commits}}}}}");
    }
}

/// What there is soon.
fn take(consumer: &BaseConsumer) -> KafkaResult<Vec<BorrowedMessage<'_>>> {
    let until = Instant::now() + BATCH_WITHIN;
    let mut messages = Vec::new();
    while messages.len() < BATCH_MAX && Instant::now() < until {
        match consumer.poll(BATCH_WITHIN) {
            Some(message) => messages.push(message?),
            None => break,
        }
    }
    Ok(messages)
}
