"""GetTelemetrySubscriptions (71), PushTelemetry (72): metrics that clients push (KIP-714)."""

from __future__ import annotations

from ..schema import (
    Message,
    Request,
    array,
    boolean,
    bytes_,
    int8,
    int16,
    int32,
    request,
    response,
    string,
    uuid,
)


@response(71, "0", flexible="0+")
class GetTelemetrySubscriptionsResponse(Message):
    """Answer to GetTelemetrySubscriptionsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    client_instance_id: bytes = uuid(about="Id of the client instance; all zero to be given one.")
    subscription_id: int = int32(about="Checksum of the subscription.")
    accepted_compression_types: list[int] = array(
        int8, about="Compression types the broker takes, best first."
    )
    push_interval_ms: int = int32(about="Time between two pushes, in ms.")
    telemetry_max_bytes: int = int32(about="At most so many bytes a push.")
    delta_temporality: bool = boolean(about="Whether counters are sent as differences.")
    requested_metrics: list[str] = array(
        string, about="Prefixes of the metrics wanted; empty for none, one empty string for all."
    )


@request(71, "0", flexible="0+", response=GetTelemetrySubscriptionsResponse)
class GetTelemetrySubscriptionsRequest(Request[GetTelemetrySubscriptionsResponse]):
    """Ask which metrics to push."""

    client_instance_id: bytes = uuid(about="Id of the client instance; all zero to be given one.")


@response(72, "0", flexible="0+")
class PushTelemetryResponse(Message):
    """Answer to PushTelemetryRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")


@request(72, "0", flexible="0+", response=PushTelemetryResponse)
class PushTelemetryRequest(Request[PushTelemetryResponse]):
    """Push metrics."""

    client_instance_id: bytes = uuid(about="Id of the client instance; all zero to be given one.")
    subscription_id: int = int32(about="Checksum of the subscription.")
    terminating: bool = boolean(about="Whether the client closes.")
    compression_type: int = int8(about="How the metrics are compressed.")
    metrics: bytes = bytes_(about="Metrics in OTLP protobuf.")
