//! Drives the crate rdkafka through what the tests of tests/programs ask for.
//!
//! ```text
//! rdkafka_program load   <bootstrap> <topic> <codec>...
//! rdkafka_program read   <bootstrap> <topic> <count>
//! rdkafka_program member <bootstrap> <topic> <group> <name>
//! rdkafka_program copy   <bootstrap> <topic> <target> <group> <name>
//! ```
//!
//! What each prints stands beside it.

mod copy;
mod load;
mod member;

use std::env;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// For calls that wait for brokers, some of which may be dead.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["load", bootstrap, topic, ref codecs @ ..] if !codecs.is_empty() => load::load(bootstrap, topic, codecs),
        ["read", bootstrap, topic, count] => read(bootstrap, topic, count.parse().expect("a number of records")),
        ["member", bootstrap, topic, group, name] => member::join(bootstrap, topic, group, name),
        ["copy", bootstrap, topic, target, group, name] => copy::copy_for_ever(bootstrap, topic, target, group, name),
        _ => {
            eprintln!("usage: rdkafka_program load|read|member|copy <bootstrap> <topic> ...");
            std::process::exit(2);
        }
    }
}

/// What every client here has.
fn settings(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    config
}

/// What every member of a group has: it begins at the first record, and commits when it is told to.
fn settings_of_member(bootstrap: &str, group: &str, name: &str) -> ClientConfig {
    let mut config = settings(bootstrap);
    config
        .set("group.id", group)
        .set("client.id", name)
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "500")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false");
    config
}

/// Prints "PARTITION VALUE" for each record of a topic from its beginning, until there were as many as are asked for.
fn read(bootstrap: &str, topic: &str, wanted: usize) {
    let consumer: BaseConsumer = settings(bootstrap).set("group.id", "none").create().expect("a consumer");
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).expect("metadata");
    let mut all = TopicPartitionList::new();
    for partition in metadata.topics()[0].partitions() {
        all.add_partition_offset(topic, partition.id(), Offset::Beginning).expect("an offset");
    }
    consumer.assign(&all).expect("an assignment");
    let mut found = 0;
    while found < wanted {
        if let Some(Ok(message)) = consumer.poll(PATIENCE) {
            print_record(&message);
            found += 1;
        }
    }
}

fn print_record(message: &BorrowedMessage<'_>) {
    let value = message.payload_view::<str>().expect("a value").expect("text");
    println!("{} {value}", message.partition());
}
