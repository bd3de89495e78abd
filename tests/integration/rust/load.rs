use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use signal_hook::consts::SIGTERM;

use crate::settings;

const WRITE_EVERY: Duration = Duration::from_millis(5);
const TOLD_EACH: usize = 50;
const ANSWERED_WITHIN: Duration = Duration::from_secs(80);

/// Counts outcomes, and prints them.
#[derive(Clone, Default)]
struct Tally {
    acknowledged: Arc<AtomicUsize>,
}

impl ClientContext for Tally {}

impl ProducerContext for Tally {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        match result {
            Ok(_) => {
                let count = self.acknowledged.fetch_add(1, Ordering::Relaxed) + 1;
                if count % TOLD_EACH == 0 {
                    println!("acknowledged {count}");
                }
            }
            Err((error, _)) => println!("failed {error}"),
        }
    }
}

/// Writes 0, 1, 2 ... until SIGTERM, through an idempotent producer for each codec, which has the partition of the
/// codec's place in the list. It prints "acknowledged N" now and then, "failed" with each error, and "done N" at its end.
pub fn load(bootstrap: &str, topic: &str, codecs: &[&str]) {
    let told = Tally::default();
    let producers: Vec<ThreadedProducer<Tally>> = codecs
        .iter()
        .map(|codec| {
            settings(bootstrap)
                .set("enable.idempotence", "true")
                .set("compression.codec", *codec)
                .set("linger.ms", "20")
                .create_with_context(told.clone())
                .expect("a producer")
        })
        .collect();
    let ended = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&ended)).expect("a handler");
    let mut sent: usize = 0;
    while !ended.load(Ordering::Relaxed) {
        let partition = sent % codecs.len();
        let value = sent.to_string();
        let record = BaseRecord::to(topic).partition(partition as i32).key(codecs[partition]).payload(&value);
        producers[partition].send(record).map_err(|(error, _)| error).expect("a place in the queue");
        sent += 1;
        thread::sleep(WRITE_EVERY);
    }
    for producer in &producers {
        producer.flush(ANSWERED_WITHIN).expect("all answers");
    }
    println!("done {sent}");
}
