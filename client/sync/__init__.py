"""Synchronous clients for scripts, notebooks and executors: the names and options of `ottla`, without `await`.

    from ottla import NewTopic
    from ottla.sync import Admin, Consumer, Producer, ShareConsumer, TransactionWriter

    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topics([NewTopic("orders", num_partitions=3)])

    with Producer(bootstrap_servers="localhost:9092") as producer:
        futures = [producer.send("orders", b"%d" % number) for number in range(10_000)]  # waits for none of them
        producer.flush()
        print(futures[-1].result().offset)

    with Producer(transactional_id="copier-7", bootstrap_servers="localhost:9092") as producer:
        with producer.transaction():  # committed at the end of the block, aborted when that raises
            producer.send("copies", b"value")

    with TransactionWriter.join(token, bootstrap_servers="localhost:9092") as writer:
        writer.send("results", b"value")  # in any process; the token is that of `producer.begin()`
        receipt = writer.finish()

    with Consumer("orders", group_id="billing", bootstrap_servers="localhost:9092") as consumer:
        for record in consumer:
            print(record.value)
            consumer.commit()

    with ShareConsumer("tasks", group_id="mailers", bootstrap_servers="localhost:9092") as queue:
        for task in queue:
            with task:  # accepted at the end of the block, released when that raises
                print(task.value)

All clients of a process share one event loop on a dedicated thread, which begins with the first client and ends with
the interpreter. A call waits for its work on that loop. `timeout_ms`, if a call has it, bounds the wait with
RequestTimedOut. Control-C ends the wait: the work is cancelled, and the client can be used as before. A thread with
another event loop, such as a notebook's, may call a client; its loop stands still meanwhile. Calls on the clients'
thread, where the callbacks of futures run, raise RuntimeError.

Any thread may use any client. After a fork the child makes new clients: the parent's clients raise MadeBeforeFork
there. Clients still open when the interpreter ends are stopped then, which takes five seconds at most.
"""

from .admin import Admin
from .backup import Backup
from .consumer import Consumer
from .exactly_once import ConsumedBatch, ExactlyOnce
from .producer import Producer, Transaction, TransactionWriter
from .share_consumer import ShareConsumer, ShareTask
from .worker import Worker

__all__ = [
    "Admin",
    "Backup",
    "ConsumedBatch",
    "Consumer",
    "ExactlyOnce",
    "Producer",
    "ShareConsumer",
    "ShareTask",
    "Transaction",
    "TransactionWriter",
    "Worker",
]
