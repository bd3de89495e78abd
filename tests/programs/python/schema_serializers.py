"""Writes a record by each of Confluent's serializers, with schemas that refer to others.

python schema_serializers.py BOOTSTRAP REGISTRY NUMBER
"""

import json
import sys
from datetime import UTC, datetime

from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.timestamp_pb2 import Timestamp

bootstrap, address, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
registry = SchemaRegistryClient({"url": address})
producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
STRING, LONG, MESSAGE = 9, 3, 11


def avro(topic):
    """Write an order that refers to a customer; the key has a separate schema."""
    customer = {"type": "record", "name": "shop.Customer", "fields": [{"name": "name", "type": "string"}]}
    registry.register_schema("shop.Customer", Schema(json.dumps(customer), "AVRO"))
    order = {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "number", "type": "long"},
            {"name": "customer", "type": "shop.Customer"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
    references = [SchemaReference("shop.Customer", "shop.Customer", 1)]
    value = AvroSerializer(registry, Schema(json.dumps(order), "AVRO", references))
    key = AvroSerializer(registry, '"long"')
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    return (
        key(number, SerializationContext(topic, MessageField.KEY)),
        value(
            {"number": number, "customer": {"name": "Ann"}, "at": at},
            SerializationContext(topic, MessageField.VALUE),
        ),
    )


def protobuf(topic):
    """Write an order that refers to another file and to one of Google's, and is the second message of its file."""
    pool = descriptor_pool.Default()
    money = descriptor_pb2.FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    sum_ = money.message_type.add(name="Money")
    sum_.field.add(name="currency", number=1, type=STRING, label=1)
    sum_.field.add(name="cents", number=2, type=LONG, label=1)
    pool.Add(money)
    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    file.dependency.extend(["shop/money.proto", "google/protobuf/timestamp.proto"])
    file.message_type.add(name="Unused")
    order = file.message_type.add(name="Order")
    order.field.add(name="number", number=1, type=LONG, label=1)
    order.field.add(name="price", number=2, type=MESSAGE, type_name=".shop.Money", label=1)
    order.field.add(name="at", number=3, type=MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    message = kind(number=number, at=Timestamp(seconds=1_769_860_800))
    message.price.currency, message.price.cents = "EUR", 1999
    serialize = ProtobufSerializer(kind, registry, {"use.deprecated.format": False})
    return None, serialize(message, SerializationContext(topic, MessageField.VALUE))


def json_schema(topic):
    """Write an order as JSON, with its schema."""
    schema = {
        "title": "Order",
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
    }
    serialize = JSONSerializer(json.dumps(schema), registry)
    return None, serialize({"number": number}, SerializationContext(topic, MessageField.VALUE))


for topic, written in (("avro", avro), ("protobuf", protobuf), ("json", json_schema)):
    key, value = written(topic)
    producer.produce(topic, value, key)
assert producer.flush(60) == 0
