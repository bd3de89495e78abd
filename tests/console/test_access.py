"""Security in the console: users, ACLs, quotas, and which rule decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from ottla.client.admin import BROKER_RESOURCE, ConfigEntry, UserLogin
from ottla.console.live.node_readings import CertificateReading, NodeReading
from ottla.console.pages.access.page import certificate_rows
from ottla.protocol.cluster.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, seen

READS = Acl(
    AclResourceType.TOPIC, "orders", PatternType.LITERAL, "User:ann", "*", AclOperation.READ, AclPermission.ALLOW
)  # fmt: skip


class Secured(FakeAdmin):
    def __init__(self) -> None:
        super().__init__()
        self.acls = [READS]
        self.authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        self.refusal: KafkaError | None = None

    async def describe_acls(self, matching: AclFilter | None = None) -> list[Acl]:
        if self.refusal is not None:
            raise self.refusal
        return self.acls

    async def describe_scram_credentials(self, users: Iterable[str] | None = None) -> list[UserLogin]:
        return [UserLogin("ann", "SCRAM-SHA-256", 8192)]

    async def describe_quotas(
        self, matching: Any = None
    ) -> list[tuple[Mapping[str, str | None], Mapping[str, float]]]:
        return [({"user": "ann", "client-id": None}, {"producer_byte_rate": 1_048_576.0})]

    async def describe_configs(self, kind: int, name: str) -> list[ConfigEntry]:
        assert kind == BROKER_RESOURCE
        values = {"authorizer.class.name": self.authorizer, "super.users": "User:root"}
        return [ConfigEntry(key, value, "broker file", False, False, True) for key, value in values.items()]


@pytest.fixture
def admin() -> Secured:
    return Secured()


@pytest.fixture
def browser(admin: Secured) -> Browser:
    return Browser(admin).enter()


def test_the_page_shows_rules_users_and_quotas(browser: Browser) -> None:
    page = seen(browser.read("/access"))
    assert "User:ann ALLOW * READ TOPIC LITERAL orders" in page
    assert "ann SCRAM-SHA-256 (8,192)" in page
    assert "client-id (any other), user ann producer_byte_rate 1,048,576" in page
    assert "No rule matches." in seen(browser.read("/access?q=refunds"))
    assert "User:ann" in seen(browser.read("/access?q=READ orders"))


@pytest.mark.parametrize(
    ("query", "verdict"),
    [
        (
            "principal=User:ann&operation=READ&of=orders",
            "allowed : ACL: ALLOW User:ann READ on topic orders from any host",
        ),
        ("principal=ann&operation=DESCRIBE&of=orders", "allowed : ACL: ALLOW User:ann"),
        ("principal=User:ann&operation=WRITE&of=orders", "denied : no ACL allows it"),
        ("principal=User:root&operation=WRITE&of=orders", "allowed : super user"),
        ("principal=User:bob&operation=ALTER&resource=cluster", "denied : no ACL allows it"),
    ],
)
def test_the_rule_that_decides_is_named(browser: Browser, query: str, verdict: str) -> None:
    assert verdict in seen(browser.read(f"/access?{query}"))


def test_the_footer_says_how_changes_are_permitted(browser: Browser) -> None:
    page = seen(browser.read("/access"))
    assert "Changes need ottla console --allow-changes or ottla up --console=changes" in page


def test_without_an_authorizer_all_is_allowed(admin: Secured, browser: Browser) -> None:
    admin.authorizer = ""
    page = seen(browser.read("/access?principal=ann&operation=WRITE&of=orders"))
    assert "allowed : there is no authorizer" in page


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("principal=ann&operation=FLY&of=orders", "'operation' is one of READ"),
        ("principal=ann&resource=moon&of=orders", "'resource' is one of topic"),
        ("principal=ann", "'of' is missing"),
    ],
)
def test_a_question_that_is_wrong_says_what_is_allowed(browser: Browser, query: str, reason: str) -> None:
    assert reason in seen(browser.read(f"/access?{query}", 400))


def test_what_is_refused_leaves_the_others(admin: Secured, browser: Browser) -> None:
    admin.refusal = KafkaError(ErrorCode.SECURITY_DISABLED, "there is no authorizer")
    page = seen(browser.read("/access"))
    assert "No authorizer is configured: every client may do everything." in page
    assert "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer" in page
    assert "ann SCRAM-SHA-256 (8,192)" in page
    admin.refusal = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the user may not describe ACLs")
    page = seen(browser.read("/access"))
    assert "the user may not describe ACLs" in page
    assert "No authorizer" not in page


def test_empty_tables_say_how_to_fill_them(admin: Secured, browser: Browser) -> None:
    assert "No rule matches. Show all" in seen(browser.read("/access?q=nothing-like-this"))
    admin.acls = []
    assert "ottla acl create creates an ACL" in seen(browser.read("/access"))


def test_certificates_that_end_first_come_first() -> None:
    day_s = 86_400.0
    nodes = {
        "a:1": NodeReading((CertificateReading("OUT", 400 * day_s), CertificateReading("IN", 3 * day_s))),
        "b:1": NodeReading((CertificateReading("the quorum's quorum", -5.0),)),
    }
    rows = certificate_rows(nodes, 1000.0)
    assert [(row.node, row.listener, row.state, row.kind) for row in rows] == [
        ("b:1", "the quorum's quorum", "has expired", "bad"),
        ("a:1", "IN", "expires soon", "bad"),
        ("a:1", "OUT", "valid", "good"),
    ]
    assert rows[0].ends_s == 995.0


def test_without_endpoints_certificates_are_not_known(browser: Browser) -> None:
    assert "Unknown: nodes report their certificates" in seen(browser.read("/access"))


def test_names_that_strangers_choose_are_text(admin: Secured, browser: Browser) -> None:
    admin.acls = [READS._replace(resource_name=HOSTILE, principal=f"User:{HOSTILE}")]
    page = browser.read("/access")
    assert "<script>alert" not in page
    assert "<img" not in page
