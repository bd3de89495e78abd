"""ACLs in the console: creation and deletion, with the effect of each change in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from ottla.client.admin import ConfigEntry, UserLogin
from ottla.client.admin.quotas import Entity
from ottla.console.access_rules import AccessRules, resource_words
from ottla.console.pages.access.acl_effects import effects, warnings_of
from ottla.console.pages.access.acls import acl_row, creation_command
from ottla.console.pages.access.operations import MEANINGS, RESOURCES
from ottla.protocol.cluster.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.protocol.cluster.authorizer_settings import STANDARD_AUTHORIZER, AuthorizerSettings
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, partition, seen, target, topic

CREATE, DELETE = "/access/acls/create", "/access/acls/delete"
READS = Acl(
    AclResourceType.TOPIC, "orders", PatternType.LITERAL, "User:ann", "*", AclOperation.READ, AclPermission.ALLOW
)  # fmt: skip
WRITES = READS._replace(operation=AclOperation.WRITE)
NEW = {"principal": "ann", "rule": "allow", "operation READ": "yes", "of": "orders", "host": "*"}


class Authorizing(FakeAdmin):
    """Keeps ACLs, and reports settings of an authorizer."""

    def __init__(self, *acls: Acl) -> None:
        super().__init__(topic("orders", partition()), topic("refunds", partition()))
        self.acls = list(acls)
        self.authorizer = STANDARD_AUTHORIZER
        self.is_open = "false"

    async def describe_acls(self, matching: AclFilter | None = None) -> list[Acl]:
        if self.failure is not None:
            raise self.failure
        return sorted(acl for acl in self.acls if matching is None or matching.matches(acl))

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        new = list(acls)
        self.calls.append(("create", new))
        self.acls += new

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[Acl]:
        wanted = list(filters)
        assert all(acl_filter.exact is not None for acl_filter in wanted)
        gone = [acl for acl in self.acls if any(acl_filter.matches(acl) for acl_filter in wanted)]
        self.calls.append(("delete", gone))
        self.acls = [acl for acl in self.acls if acl not in gone]
        return gone

    async def describe_configs(self, kind: int, name: str) -> list[ConfigEntry]:
        values = {
            "authorizer.class.name": self.authorizer,
            "super.users": "User:root",
            "allow.everyone.if.no.acl.found": self.is_open,
        }
        return [ConfigEntry(key, value, "broker file", False, False, True) for key, value in values.items()]

    async def describe_scram_credentials(self, users: Iterable[str] | None = None) -> list[UserLogin]:
        return []

    async def describe_quotas(self, matching: Entity | None = None) -> list[tuple[Entity, dict[str, float]]]:
        return []


def browser_of(admin: FakeAdmin) -> Browser:
    return Browser(admin, may_change=True).enter()


def with_query(fields: Mapping[str, str], **changes: str) -> dict[str, str]:
    return {name: value for name, value in {**fields, **changes}.items() if value}


# ------------------------------------------------------------ effects


def rules(*acls: Acl, is_open: bool = False) -> AccessRules:
    return AccessRules(AuthorizerSettings(frozenset({"User:root"}), is_open), acls)


def lines_of(before: AccessRules, *added: Acl, removed: tuple[Acl, ...] = ()) -> list[tuple[Any, ...]]:
    after = before.changed(added=added, removed=removed)
    found = effects(before, after, [*added, *removed])
    return [(line.what, line.before, line.after) for line in found]


def test_a_right_includes_others() -> None:
    assert lines_of(rules(), READS) == [
        (
            "User:ann from every host: READ on topic orders",
            "denied: no ACL allows it",
            "allowed by a rule of this change",
        ),
        (
            "User:ann from every host: DESCRIBE on topic orders",
            "denied: no ACL allows it",
            "allowed by a rule of this change",
        ),
    ]


def test_a_rule_without_effect_is_seen_as_such() -> None:
    denial = READS._replace(permission=AclPermission.DENY, principal="User:*")
    assert lines_of(rules(denial), READS) == [
        (
            "User:ann from every host: READ on topic orders",
            "denied by ACL: DENY User:* READ on topic orders from any host",
            "still denied by ACL: DENY User:* READ on topic orders from any host",
        ),
        (
            "User:ann from every host: DESCRIBE on topic orders",
            "denied: no ACL allows it",
            "allowed by a rule of this change",
        ),
    ]
    (line,) = lines_of(rules(), READS._replace(principal="User:root", permission=AclPermission.DENY))
    assert line[1:] == ("allowed: super user", "still allowed: super user")


def test_a_rule_for_every_operation_shows_each() -> None:
    everything = READS._replace(
        operation=AclOperation.ALL, pattern_type=PatternType.PREFIXED, principal="User:*"
    )
    lines = lines_of(rules(READS), everything)
    assert [line[0] for line in lines] == [
        f"every user from every host: {operation.name} on every topic whose name begins with orders"
        for operation in MEANINGS[AclResourceType.TOPIC]
    ]


def test_the_removal_of_one_of_two_rules_changes_little() -> None:
    assert lines_of(rules(READS, WRITES), removed=(READS,)) == [
        (
            "User:ann from every host: READ on topic orders",
            "allowed by a rule of this change",
            "denied: no ACL allows it",
        )
    ]


def test_a_host_counts() -> None:
    near = READS._replace(host="10.0.0.0/8")
    (read, _) = lines_of(rules(READS._replace(host="10.0.0.7")), near)
    assert read[0] == "User:ann from 10.0.0.0/8: READ on topic orders"
    assert read[1] == "denied: no ACL allows it"


def test_the_first_and_the_last_rule_about_a_resource_may_concern_everyone() -> None:
    before, after = rules(is_open=True), rules(READS, is_open=True)
    text = warnings_of(before, after, [READS], user="")
    assert text.endswith("only super users, and the clients that ACLs allow, may use topic orders.")
    assert "every client may use topic orders." in warnings_of(after, before, [READS], user="")
    assert warnings_of(rules(), rules(READS), [READS], user="") == ""
    assert "logs in as ann" in warnings_of(rules(), rules(READS), [READS], user="ann")
    anybody = READS._replace(principal="User:*")
    assert "logs in as bob" in warnings_of(rules(), rules(anybody), [anybody], user="bob")
    assert warnings_of(rules(), rules(READS), [READS], user="bob") == ""


def test_resources_in_words() -> None:
    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
    assert resource_words(AclResourceType.CLUSTER, literal, "kafka-cluster") == "the cluster"
    assert resource_words(AclResourceType.TRANSACTIONAL_ID, literal, "*") == "every transactional id"
    assert resource_words(AclResourceType.GROUP, prefixed, "a-") == "every group whose name begins with a-"
    assert resource_words(99, literal, "x") == "resource type 99 x"


def test_a_prefix_closes_every_topic_that_begins_with_it() -> None:
    prefixed = READS._replace(pattern_type=PatternType.PREFIXED)
    text = warnings_of(rules(is_open=True), rules(prefixed, is_open=True), [prefixed], user="")
    assert text.endswith("may use every topic whose name begins with orders.")


def test_rules_of_later_versions_have_no_effect_that_this_one_knows() -> None:
    for later in (READS._replace(operation=99), READS._replace(resource_type=99)):
        assert lines_of(rules(later), removed=(later,)) == []


def test_every_operation_of_kafka_has_a_resource() -> None:
    named = {operation for meanings in MEANINGS.values() for operation in meanings}
    assert named == {operation for operation in AclOperation if operation > AclOperation.ALL}
    assert set(MEANINGS) == set(RESOURCES.values())


# ------------------------------------------------------------ create


def test_acls_are_created_after_a_preview() -> None:
    admin = Authorizing()
    browser = browser_of(admin)
    form = browser.read(target(browser.read("/access"), "Create ACLs"))
    assert "READ: read records, and commit offsets; includes DESCRIBE" in seen(form)
    assert '<option value="orders"></option><option value="refunds"></option>' in form
    fields = with_query(NEW, **{"operation WRITE": "yes", "pattern": "prefixed", "host": "10.1.2.3/8"})
    preview = seen(browser.send(CREATE, **fields, step="preview"))
    assert "Create 2 ACLs" in preview
    assert "ACL nothing ALLOW User:ann from 10.0.0.0/8 READ on Topic:PREFIXED:orders" in preview
    assert (
        "DESCRIBE on every topic whose name begins with orders denied: no ACL allows it allowed by" in preview
    )
    command = (
        "ottla acl create --principal User:ann --operation READ --operation WRITE --topic orders --prefixed"
    )
    assert f"{command} --host 10.0.0.0/8" in preview
    assert admin.changes() == []
    assert "created for User:ann: 2 ACLs" in seen(browser.read(browser.change(CREATE, **fields)))
    prefixed = READS._replace(pattern_type=PatternType.PREFIXED, host="10.0.0.0/8")
    assert admin.acls == [prefixed, prefixed._replace(operation=AclOperation.WRITE)]
    again = with_query(fields, **{"operation ALTER": "yes"})
    assert "Create 1 ACL " in seen(browser.send(CREATE, **again))
    assert "these ACLs exist already" in seen(browser.send(CREATE, 400, **fields))


def test_a_denial_of_the_cluster_has_no_name() -> None:
    admin = Authorizing()
    browser = browser_of(admin)
    address = f"{CREATE}?resource=cluster"
    assert 'name="of"' not in browser.read(address)
    fields = {"principal": "User:*", "rule": "deny", "operation ALL": "yes", "host": "*"}
    preview = seen(browser.send(address, **fields))
    assert "ottla acl create --deny --principal 'User:*' --operation ALL --cluster" in preview
    browser.change(address, **fields)
    (acl,) = admin.acls
    assert acl[:3] == (AclResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)


@pytest.mark.parametrize("resource", RESOURCES)
def test_each_resource_has_a_form_with_its_operations(resource: str) -> None:
    form = browser_of(Authorizing()).read(f"{CREATE}?resource={resource.replace(' ', '+')}")
    for operation in (*MEANINGS[RESOURCES[resource]], AclOperation.ALL):
        assert f'name="operation {operation.name}"' in form


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"operation READ": ""}, "choose an operation"),
        ({"principal": ""}, "'principal' is missing"),
        ({"of": ""}, "'of' is missing"),
        ({"rule": "maybe"}, "'rule' is one of allow, deny, not 'maybe'"),
        ({"pattern": "match"}, "'pattern' is one of literal, prefixed"),
        ({"host": "example.com"}, "Invalid host example.com"),
        ({"principal": ":ann"}, "Could not parse principal"),
        ({"of": "x" * 5000}, "Resource name is too long"),
    ],
)
def test_an_acl_that_cannot_be(fields: dict[str, str], reason: str) -> None:
    admin = Authorizing()
    assert reason in seen(browser_of(admin).send(CREATE, 400, **with_query(NEW, **fields)))
    assert admin.changes() == []


def test_the_form_keeps_its_boxes() -> None:
    page = browser_of(Authorizing()).send(CREATE, 400, **with_query(NEW, principal="", host="10.0.0.7"))
    assert 'name="operation READ" value="yes" checked' in page
    assert 'name="operation WRITE" value="yes">' in page
    assert 'name="host" value="10.0.0.7"' in page


def test_without_an_authorizer_there_are_no_acls() -> None:
    admin = Authorizing()
    admin.authorizer = ""
    browser = browser_of(admin)
    assert "no authorizer is configured, so the cluster keeps no ACLs" in seen(
        browser.send(CREATE, 400, **NEW)
    )
    admin.failure = KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    page = browser.read("/access")
    assert "How to configure an authorizer" in page
    assert CREATE not in page


def test_rules_that_others_have_changed_since_are_shown_again() -> None:
    admin = Authorizing()
    browser = browser_of(admin)
    preview = browser.send(CREATE, **NEW)
    admin.acls.append(READS._replace(permission=AclPermission.DENY))
    again = browser.do_it(CREATE, preview, 409)
    assert "Not done: User:ann from every host: READ on topic orders" in seen(again)
    assert "still denied by ACL: DENY User:ann" in seen(again)
    admin.acls = [READS]
    assert "exist already" in seen(browser.do_it(CREATE, again, 400))
    assert admin.changes() == []


# ------------------------------------------------------------ delete


def test_the_row_of_an_acl_leads_to_its_deletion() -> None:
    prefixed = READS._replace(pattern_type=PatternType.PREFIXED)
    admin = Authorizing(READS, WRITES, prefixed, READS._replace(permission=AclPermission.DENY))
    browser = browser_of(admin)
    address = acl_row(READS).deletion
    assert address.replace("&", "&amp;") in browser.read("/access")
    form = browser.read(address)
    assert 'name="principal" value="User:ann"' in form
    assert form.count(" selected") == 4
    fields = {
        "principal": "User:ann", "host": "*", "of": "orders",
        "rule": "allow", "operation": "READ", "resource": "topic", "pattern": "literal",
    }  # fmt: skip
    preview = seen(browser.send(address, **fields))
    assert "Delete 1 ACL " in preview
    assert "ACL ALLOW User:ann from * READ on Topic:LITERAL:orders nothing" in preview
    command = (
        "ottla acl delete --allow --principal User:ann --host '*' --operation READ --topic orders --literal"
    )
    assert command in preview
    browser.change(address, **fields)
    assert admin.calls == [("delete", [READS])]


def test_an_acl_that_forms_do_not_know_has_no_link() -> None:
    assert acl_row(READS._replace(operation=99)).deletion == ""
    assert acl_row(READS._replace(resource_type=99)).deletion == ""


def test_all_acls_of_a_principal_are_deleted_together() -> None:
    group = READS._replace(resource_type=AclResourceType.GROUP, resource_name="reports")
    bob = READS._replace(principal="User:bob")
    admin = Authorizing(READS, WRITES, group, bob)
    browser = browser_of(admin)
    fields = {"principal": "ann", "rule": "any", "operation": "any", "resource": "any", "pattern": "any"}
    preview = seen(browser.send(DELETE, **fields))
    assert "Delete 3 ACLs" in preview
    assert "READ on group reports allowed by a rule of this change denied: no ACL allows it" in preview
    assert "ottla acl delete --principal User:ann Do it" in preview
    browser.change(DELETE, **fields)
    assert admin.acls == [bob]
    assert "no ACL matches" in seen(browser.send(DELETE, 400, **fields))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "name a principal or a resource"),
        ({"resource": "topic"}, "a resource has a type and a name: give both, or neither"),
        ({"of": "orders", "principal": "ann"}, "a resource has a type and a name"),
        ({"principal": "ann", "operation": "FLY"}, "'operation' is one of any, ALL, READ"),
    ],
)
def test_a_deletion_that_cannot_be(fields: dict[str, str], reason: str) -> None:
    assert reason in seen(browser_of(Authorizing(READS)).send(DELETE, 400, **fields))


def test_many_acls_are_deleted_by_command() -> None:
    admin = Authorizing(*(READS._replace(resource_name=f"t-{number}") for number in range(201)))
    page = seen(browser_of(admin).send(DELETE, 400, principal="ann"))
    assert "201 ACLs match, and the console deletes 200 at a time" in page


def test_an_acl_that_somebody_else_has_deleted_is_shown_again() -> None:
    admin = Authorizing(READS, WRITES)
    browser = browser_of(admin)
    preview = browser.send(DELETE, principal="ann")
    admin.acls = [WRITES]
    again = browser.do_it(DELETE, preview, 409)
    assert "somebody else has deleted ALLOW User:ann from * READ" in seen(again)
    admin.acls.append(READS)  # a new ACL stays
    browser.do_it(DELETE, again, 409)
    assert admin.changes() == []


def test_names_that_strangers_choose_are_text() -> None:
    hostile = READS._replace(resource_name=HOSTILE, principal=f"User:{HOSTILE}")
    browser = browser_of(Authorizing(hostile))
    address = acl_row(hostile).deletion
    fields = {"principal": hostile.principal, "of": HOSTILE, "resource": "topic"}
    for page in (browser.read("/access"), browser.read(address), browser.send(DELETE, **fields)):
        assert "<script>alert" not in page
        assert "<img" not in page
    assert "--topic '</title>" in creation_command([hostile])


def test_a_console_that_only_reads_has_no_forms() -> None:
    page = Browser(Authorizing(READS)).enter().read("/access")
    assert "User:ann" in page
    assert "/access/acls" not in page
