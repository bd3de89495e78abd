"""The applicable limit, compared with Kafka's list of precedence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.quotas import QuotaLimits
from ottla.protocol.cluster.cluster_image import QuotaEntity

NAMES = ("a", "b", None)
USERS = [(("user", user),) for user in NAMES]
CLIENTS = [(("client-id", client),) for client in NAMES]
BOTH = [(("client-id", client), ("user", user)) for client in NAMES for user in NAMES]
ENTITIES: list[QuotaEntity] = [*USERS, *CLIENTS, *BOTH]
VALUES = st.dictionaries(st.sampled_from(["rate", "other"]), st.floats(1, 9), min_size=1)


def first(quotas: dict[QuotaEntity, dict[str, float]], user: str, client: str) -> object:
    """Return the first quota in Kafka's order (KIP-55), with the group of clients that share it."""
    order = [
        ({"user": user, "client-id": client}, (user, client)),
        ({"user": user, "client-id": None}, (user, client)),
        ({"user": user}, (user, None)),
        ({"user": None, "client-id": client}, (user, client)),
        ({"user": None, "client-id": None}, (user, client)),
        ({"user": None}, (user, None)),
        ({"client-id": client}, (None, client)),
        ({"client-id": None}, (None, client)),
    ]
    for wanted, counted_as in order:
        for entity, values in quotas.items():
            if dict(entity) == wanted and "rate" in values:
                return values["rate"], counted_as
    return None


@given(st.dictionaries(st.sampled_from(ENTITIES), VALUES), st.sampled_from("abx"), st.sampled_from("abx"))
def test_the_most_specific_limit_counts(
    quotas: dict[QuotaEntity, dict[str, float]], user: str, client: str
) -> None:
    limits = QuotaLimits(quotas, "rate")
    assert limits.of(user, client) == first(quotas, user, client)
    assert bool(limits) == any("rate" in values for values in quotas.values())


def test_addresses_have_their_own_limit_or_the_default() -> None:
    limits = QuotaLimits({(("ip", "1.2.3.4"),): {"rate": 5.0}, (("ip", None),): {"rate": 9.0}}, "rate")
    assert limits.of_address("1.2.3.4") == (5.0, ("1.2.3.4", None))
    assert limits.of_address("::1") == (9.0, ("::1", None))
    assert limits.of("ANONYMOUS", "c") is None


@pytest.mark.parametrize(
    ("written", "peer"),
    [
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80:0::1%eth0", "fe80::1%eth0"),
    ],
)
def test_an_address_has_its_limit_however_it_was_written(written: str, peer: str) -> None:
    limits = QuotaLimits({(("ip", written),): {"rate": 5.0}}, "rate")
    assert limits.of_address(peer) == (5.0, (peer, None))
