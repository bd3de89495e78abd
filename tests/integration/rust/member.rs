use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};

use crate::{PATIENCE, print_record, settings_of_member};

/// Tells what the member holds.
struct Telling;

impl ClientContext for Telling {}

impl ConsumerContext for Telling {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(given) => {
                println!("holds {:?}", given.elements().iter().map(|one| one.partition()).collect::<Vec<_>>());
            }
            Rebalance::Revoke(_) => println!("holds []"),
            Rebalance::Error(error) => println!("left {error}"),
        }
    }
}

/// Prints "holds [PARTITIONS]" as often as the group is balanced, "PARTITION VALUE" for each record, and commits it then,
/// until it is killed.
pub fn join(bootstrap: &str, topic: &str, group: &str, name: &str) {
    let consumer: BaseConsumer<Telling> =
        settings_of_member(bootstrap, group, name).create_with_context(Telling).expect("a consumer");
    consumer.subscribe(&[topic]).expect("a subscription");
    loop {
        match consumer.poll(PATIENCE) {
            Some(Ok(message)) => {
                print_record(&message);
                if let Err(error) = consumer.commit_message(&message, CommitMode::Sync) {
                    println!("not committed {error}");
                }
            }
            Some(Err(error)) => println!("met {error}"),
            None => {}
        }
    }
}
