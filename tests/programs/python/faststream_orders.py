"""Three subscribers: one pays orders, one books paid orders in batches, one audits orders and acknowledges by hand.

python faststream_orders.py kafka|confluent BOOTSTRAP
"""

import asyncio
import importlib
import sys

from faststream import AckPolicy, FastStream

backend, bootstrap = sys.argv[1:]
module = importlib.import_module(f"faststream.{backend}")
annotations = importlib.import_module(f"faststream.{backend}.annotations")
broker = module.KafkaBroker(bootstrap.split(","), enable_idempotence=True)
reading = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6000,  # a killed one is missed sooner
    "heartbeat_interval_ms": 1000,
}
again: set[str] = set()


@broker.subscriber("orders", group_id="payers", ack_policy=AckPolicy.NACK_ON_ERROR, **reading)
@broker.publisher("paid")
async def pay(order: str) -> str:
    return f"paid {order}"


@broker.subscriber("paid", group_id="bookers", batch=True, ack_policy=AckPolicy.NACK_ON_ERROR, **reading)
@broker.publisher("booked", batch=True)
async def book(payments: list[str]) -> list[str]:
    return [f"booked {payment}" for payment in payments]


@broker.subscriber("orders", group_id="auditors", ack_policy=AckPolicy.MANUAL, **reading)
async def audit(order: str, message: annotations.KafkaMessage) -> None:
    """Refuse every order that ends with 7 once, which repeats the order."""
    if order.endswith("7") and order not in again:
        again.add(order)
        await broker.publish(f"refused {order}", "refused")
        await message.nack()
    else:
        await broker.publish(f"audited {order}", "audited")
        await message.ack()


asyncio.run(FastStream(broker).run())
