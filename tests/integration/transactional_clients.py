"""Producers and readers of transactions of four stock clients, all used in the same way, each call synchronous.

    client = open_client("aiokafka", bootstrap)
    producer = client.producer("mover-1")
    producer.begin()
    producer.send("orders", 0, b"v")
    producer.commit()
    assert client.read("orders", committed=True) == [Read(Place(0, 0), b"v")]
    client.close()

`Fenced`: another instance has taken over, and this one is unusable. `Failed`: any other error of the client.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors
import aiokafka.structs
import confluent_kafka
import kafka
import kafka.errors
import kafka.structs

from tests import java
from tests.integration.history import Place, Read

TIMEOUT_MS = 60_000
"""Transaction timeout in milliseconds, unless a test sets another."""
SOCKET_MS = 4_000
DEADLINE_S = 90.0

T = TypeVar("T")


class Failed(Exception):
    """An error or refusal of a client, with its message."""


class Fenced(Failed):
    """An error of an instance that another one has replaced."""


class Producer(ABC):
    """An initialised producer instance: an earlier one with the same transactional id is fenced."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, partition: int, value: bytes) -> None:
        """Send without waiting."""

    @abstractmethod
    def flush(self) -> None:
        """Wait for the outcome of all sends; failures may be raised here, and are raised by `commit`."""

    @abstractmethod
    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the group's next offset of each partition, effective if the transaction is committed."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Close without ending an open transaction; the client calls this."""


class TransactionalClient(ABC):
    """A client with transactional producers and readers."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._opened: list[Producer] = []

    def producer(self, transactional_id: str | None, timeout_ms: int = TIMEOUT_MS) -> Producer:
        """Open a producer. Without an id it is idempotent, and begin, commit and abort are not available."""
        opened = self._open_producer(transactional_id, timeout_ms)
        self._opened.append(opened)
        return opened

    @abstractmethod
    def read(self, topic: str, *, committed: bool) -> list[Read]:
        """Read up to the end offset, of this isolation level, at the start of the call."""

    def close(self) -> None:
        """Close the client and its producers, without ending their transactions."""
        for producer in self._opened:
            producer.close()

    @abstractmethod
    def _open_producer(self, transactional_id: str | None, timeout_ms: int) -> Producer: ...


# ---------------------------------------------------------------- confluent-kafka


class _ConfluentProducer(Producer):
    def __init__(self, bootstrap: str, transactional_id: str | None, timeout_ms: int) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "enable.idempotence": True,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
        if transactional_id is not None:
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
            # A request that a hanging broker does not answer is soon sent to the next one.
            settings |= {"message.timeout.ms": 0, "socket.timeout.ms": min(SOCKET_MS, timeout_ms - 100)}
        self._bootstrap = bootstrap
        self._producer = confluent_kafka.Producer(settings)
        if transactional_id is not None:
            with _confluent_errors():
                self._producer.init_transactions(DEADLINE_S)

    def begin(self) -> None:
        with _confluent_errors():
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        with _confluent_errors():
            self._producer.produce(topic, value, partition=partition)
        self._producer.poll(0)

    def flush(self) -> None:
        with _confluent_errors():
            assert self._producer.flush(DEADLINE_S) == 0

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        asking = confluent_kafka.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        where = [confluent_kafka.TopicPartition(topic, p, offset) for p, offset in offsets.items()]
        try:
            with _confluent_errors():
                self._producer.send_offsets_to_transaction(
                    where, asking.consumer_group_metadata(), DEADLINE_S
                )
        finally:
            asking.close()

    def commit(self) -> None:
        with _confluent_errors():
            self._producer.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        with _confluent_errors():
            self._producer.abort_transaction(DEADLINE_S)

    def close(self) -> None:
        with suppress(confluent_kafka.KafkaException):  # what has ended it before
            self._producer.purge()
            self._producer.poll(0)


@contextmanager
def _confluent_errors() -> Iterator[None]:
    fencing = {confluent_kafka.KafkaError._FENCED, confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH}
    fencing.add(confluent_kafka.KafkaError.PRODUCER_FENCED)
    try:
        yield
    except confluent_kafka.KafkaException as error:
        code = error.args[0].code()
        raise (Fenced if code in fencing else Failed)(str(error)) from error


class Confluent(TransactionalClient):
    """librdkafka's Python client."""

    def _open_producer(self, transactional_id: str | None, timeout_ms: int) -> Producer:
        return _ConfluentProducer(self.bootstrap, transactional_id, timeout_ms)

    def read(self, topic: str, *, committed: bool) -> list[Read]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": uuid.uuid4().hex,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        found: list[Read] = []
        try:
            left = set(consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions)
            consumer.assign(
                [confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in left]
            )
            while left:
                for message in consumer.consume(1_000, 0.1):
                    if (error := message.error()) is None:
                        place = Place(message.partition() or 0, message.offset() or 0)
                        found.append(Read(place, message.value() or b""))
                    elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
                    elif not error.retriable():
                        raise Failed(str(error))
        finally:
            consumer.close()
        return found


# ---------------------------------------------------------------- kafka-python


class _KafkaPythonProducer(Producer):
    def __init__(self, bootstrap: str, transactional_id: str | None, timeout_ms: int) -> None:
        settings: dict[str, Any] = {"enable_idempotence": True}
        if transactional_id is not None:
            settings = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, linger_ms=5, retry_backoff_ms=20, **settings
        )
        if transactional_id is not None:
            with _kafka_python_errors():
                self._producer.init_transactions()

    def begin(self) -> None:
        with _kafka_python_errors():
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        with _kafka_python_errors():
            self._producer.send(topic, value, partition=partition)

    def flush(self) -> None:
        self._producer.flush(DEADLINE_S)

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        where = {
            kafka.structs.TopicPartition(topic, p): kafka.structs.OffsetAndMetadata(offset, "", -1)
            for p, offset in offsets.items()
        }
        with _kafka_python_errors():
            self._producer.send_offsets_to_transaction(where, group)

    def commit(self) -> None:
        with _kafka_python_errors():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with _kafka_python_errors():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)


@contextmanager
def _kafka_python_errors() -> Iterator[None]:
    fencing = (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)
    try:
        yield
    except fencing as error:
        raise Fenced(repr(error)) from error
    except kafka.errors.KafkaError as error:
        raise (Fenced if "Fenced" in repr(error) else Failed)(repr(error)) from error


class KafkaPython(TransactionalClient):
    """The client kafka-python."""

    def _open_producer(self, transactional_id: str | None, timeout_ms: int) -> Producer:
        return _KafkaPythonProducer(self.bootstrap, transactional_id, timeout_ms)

    def read(self, topic: str, *, committed: bool) -> list[Read]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        found: list[Read] = []
        try:
            every = [kafka.TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
            ends = consumer.end_offsets(every)
            consumer.assign(every)
            for partition in every:
                consumer.seek(partition, 0)
            while any(consumer.position(partition) < ends[partition] for partition in every):
                for records in consumer.poll(100).values():
                    found += [
                        Read(Place(record.partition, record.offset), record.value) for record in records
                    ]
        finally:
            consumer.close()
        return found


# ---------------------------------------------------------------- aiokafka


class _AiokafkaProducer(Producer):
    def __init__(self, client: Aiokafka, transactional_id: str | None, timeout_ms: int) -> None:
        self._client = client
        self._sent: list[Awaitable[Any]] = []
        settings: dict[str, Any] = {"enable_idempotence": True}
        if transactional_id is not None:
            settings |= {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}

        async def started() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=client.bootstrap, linger_ms=5, retry_backoff_ms=20, **settings
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            return producer

        self._producer = client.run(started())

    def begin(self) -> None:
        self._client.run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._sent.append(self._client.run(self._producer.send(topic, value, partition=partition)))

    def flush(self) -> None:
        self._client.run(self._settled())

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        where = {
            aiokafka.structs.TopicPartition(topic, p): aiokafka.structs.OffsetAndMetadata(offset, "")
            for p, offset in offsets.items()
        }
        self._client.run(self._producer.send_offsets_to_transaction(where, group))

    def commit(self) -> None:
        self._client.run(self._settled())
        self._client.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._client.run(self._producer.flush())
        self._client.run(self._producer.abort_transaction())

    def close(self) -> None:
        self._client.close_producer(self._producer)

    async def _settled(self) -> None:
        await self._producer.flush()
        sent, self._sent = self._sent, []
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome


class Aiokafka(TransactionalClient):
    """The client aiokafka, on an event loop in a separate thread."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._loop = asyncio.new_event_loop()
        # The client never retrieves the errors of its own tasks when it is fenced; it raises the relevant ones.
        self._loop.set_exception_handler(lambda _, context: None)
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def _open_producer(self, transactional_id: str | None, timeout_ms: int) -> Producer:
        return _AiokafkaProducer(self, transactional_id, timeout_ms)

    def read(self, topic: str, *, committed: bool) -> list[Read]:
        return self.run(self._read(topic, "read_committed" if committed else "read_uncommitted"))

    async def _read(self, topic: str, isolation: str) -> list[Read]:
        found: list[Read] = []
        async with aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=self.bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
        ) as consumer:
            every = consumer.assignment()
            ends = await consumer.end_offsets(every)
            while any([await consumer.position(partition) < ends[partition] for partition in every]):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found += [
                        Read(Place(record.partition, record.offset), record.value) for record in records
                    ]
        return found

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop; errors become `Failed`."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as error:
            raise Fenced(repr(error)) from error
        except aiokafka.errors.KafkaError as error:
            raise Failed(repr(error)) from error
        except AssertionError as error:
            # This error means that the producer is unusable.
            raise (Fenced if "FATAL_ERROR" in str(error) else Failed)(repr(error)) from error

    def close_producer(self, producer: aiokafka.AIOKafkaProducer) -> None:
        """Close the producer, and abandon its batches and its open transaction."""

        async def end() -> None:
            await producer._sender.close()
            await producer.client.close()
            producer._closed = True

        self.run(end())

    def close(self) -> None:
        super().close()
        self.run(self._cancelled())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancelled(self) -> None:
        """Cancel the remaining tasks of closed producers."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


# ---------------------------------------------------------------- Java


class _JavaProducer(Producer):
    def __init__(self, client: Java, transactional_id: str | None, timeout_ms: int) -> None:
        self._client, self._name = client, uuid.uuid4().hex
        settings = {"bootstrap.servers": client.bootstrap, "retry.backoff.ms": "20"}
        if transactional_id is not None:
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": str(timeout_ms)}
        self._call("open", settings=settings)

    def begin(self) -> None:
        self._call("begin")

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._call("send", topic=topic, partition=partition, value=value.decode())

    def flush(self) -> None:
        self._call("flush")

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self._call("offsets", group=group, topic=topic, offsets={str(p): o for p, o in offsets.items()})

    def commit(self) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        self._call("close")

    def _call(self, do: str, **arguments: object) -> None:
        self._client.call(do, name=self._name, **arguments)


class Java(TransactionalClient):
    """Kafka's own clients, in a JVM that ends with this process."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._clients = java.Clients("TransactionalClients", before=_die_at_once_with_parent)

    def _open_producer(self, transactional_id: str | None, timeout_ms: int) -> Producer:
        return _JavaProducer(self, transactional_id, timeout_ms)

    def read(self, topic: str, *, committed: bool) -> list[Read]:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
        found = self.call("read", topic=topic, settings=settings)
        return [Read(Place(partition, offset), value.encode()) for partition, offset, value in found]

    def call(self, do: str, **arguments: object) -> Any:
        """Return the value of a call; errors become `Failed`."""
        fencing = {"ProducerFencedException", "InvalidProducerEpochException"}
        try:
            return self._clients.call(do, **arguments)
        except java.Refused as error:
            name, message = error.args
            kind = Fenced if name in fencing or "ProducerFenced" in message else Failed
            raise kind(message) from error

    def close(self) -> None:
        self._clients.close()


def _die_at_once_with_parent() -> None:
    """Make the kernel kill the child when the thread that started it ends; runs in the child before exec."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


CLIENTS: dict[str, type[TransactionalClient]] = {
    "confluent-kafka": Confluent,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
    "java": Java,
}


def open_client(name: str, bootstrap: str) -> TransactionalClient:
    """Open a client of `CLIENTS`; the caller closes it."""
    return CLIENTS[name](bootstrap)
