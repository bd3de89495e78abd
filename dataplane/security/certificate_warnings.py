"""Warnings about the certificate of a node, before other nodes refuse it."""

from __future__ import annotations

from collections.abc import Iterator

from cryptography.hazmat.primitives.serialization import Encoding

from .distinguished_names import subject_name
from .node_tls import PRINCIPALS
from .principal import USER, Principal
from .tls_loading import LoadedTls


def node_warnings(own: LoadedTls, principals: frozenset[str]) -> Iterator[str]:
    """Yield a warning if nodes with the same list `principals` would refuse the certificate of this node: its principal
    is not in the list, or cannot be read.
    """
    certificate = own.keys.certificate.public_bytes(Encoding.DER)
    try:
        principal = Principal(USER, own.mapping.name_of(subject_name(certificate)))
    except ValueError as error:
        yield f"{own.keys.source}: the certificate of this node names no principal: {error}"
        return
    if str(principal) not in principals:
        yield (
            f"{own.keys.source}: this node is {principal} by its certificate, which is not among {PRINCIPALS}: nodes "
            "with the same list refuse it"
        )
