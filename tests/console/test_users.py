"""Users in the console: creation with a password that is shown once, a new password, and deletion."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from ottla.client.admin import UserLogin, UserPassword
from ottla.client.admin.quotas import Entity
from ottla.console.pages.access.users import user_rows
from ottla.protocol.cluster.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import HOSTILE, ORIGIN, Browser, FakeAdmin, hidden_fields, seen

CREATE = "/access/users/create"
OF_ANN = "?user=ann"
NEW_ANN = {"user": "ann", "mechanism": "SCRAM-SHA-512", "iterations": "4096"}
READS = Acl(
    AclResourceType.TOPIC, "orders", PatternType.LITERAL, "User:ann", "*", AclOperation.READ, AclPermission.ALLOW
)  # fmt: skip


class WithUsers(FakeAdmin):
    """Keeps users with their passwords by mechanism."""

    def __init__(self, *logins: UserLogin) -> None:
        super().__init__()
        self.logins = {(login.user, login.mechanism): login for login in logins}
        self.passwords: dict[tuple[str, str], str] = {}
        self.acls: list[Acl] = []
        self.refusal: KafkaError | None = None

    async def describe_scram_credentials(self, users: Iterable[str] | None = None) -> list[UserLogin]:
        asked = None if users is None else set(users)
        found = [login for login in self.logins.values() if asked is None or login.user in asked]
        if asked is not None and not found:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "no such user")
        return found

    async def describe_acls(self, matching: AclFilter | None = None) -> list[Acl]:
        if self.refusal is not None:
            raise self.refusal
        return [acl for acl in self.acls if matching is None or matching.matches(acl)]

    async def describe_quotas(self, matching: Entity | None = None) -> list[tuple[Entity, dict[str, float]]]:
        return []

    async def alter_scram_credentials(
        self, upserts: Sequence[UserPassword] = (), deletions: Sequence[tuple[str, str]] = ()
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.calls.append(("users", (len(upserts), list(deletions))))
        for new in upserts:
            self.logins[new.user, new.mechanism] = UserLogin(new.user, new.mechanism, new.iterations)
            self.passwords[new.user, new.mechanism] = new.password
        for gone in deletions:
            del self.logins[gone]


ANN = UserLogin("ann", "SCRAM-SHA-512", 8192)
ANN_TOO = UserLogin("ann", "SCRAM-SHA-256", 4096)
BOB = UserLogin("bob", "SCRAM-SHA-512", 4096)


def browser_of(admin: FakeAdmin) -> Browser:
    return Browser(admin, may_change=True).enter()


def password_in(page: str) -> str:
    found = re.search(r'<pre class="command secret">([^<]+)</pre>', page)
    assert found is not None, page
    return found[1]


def test_the_table_has_one_row_for_each_user() -> None:
    rows = user_rows([ANN, BOB, ANN_TOO])
    assert [(row.name, row.mechanisms) for row in rows] == [
        ("ann", "SCRAM-SHA-256 (4,096), SCRAM-SHA-512 (8,192)"),
        ("bob", "SCRAM-SHA-512 (4,096)"),
    ]


def test_tables_of_the_page_are_sorted_and_paged_apart() -> None:
    admin = WithUsers(*(UserLogin(f"user-{number:03}", "SCRAM-SHA-512", 4096) for number in range(60)))
    admin.acls = [READS._replace(principal=f"User:p-{number:03}") for number in range(60)]
    browser = browser_of(admin)
    page = browser.read("/access?users-sort=-user&users-page=2&acls-sort=-principal")
    assert "user-009 SCRAM-SHA-512" in seen(page)
    assert "user-010" not in page
    assert "User:p-059" in page
    assert 'href="/access?users-page=2&amp;acls-sort=-principal&amp;users-sort=user#users"' not in page
    assert 'href="/access?acls-sort=-principal&amp;users-sort=user#users"' in page
    assert "'users-sort' is one of user, mechanisms" in seen(browser.read("/access?users-sort=x", 400))
    searched = browser.read("/access?q=p-01&acls-sort=-principal")
    assert '<input type="hidden" name="acls-sort" value="-principal">' in searched
    assert "p-020" not in searched


def test_a_new_user_gets_a_password_that_is_shown_once(caplog: pytest.LogCaptureFixture) -> None:
    admin = WithUsers(BOB)
    browser = browser_of(admin)
    assert CREATE in browser.read("/access")
    preview = browser.send(CREATE, **NEW_ANN, step="preview")
    assert "user nothing ann password for SCRAM-SHA-512 nothing a new random password, 4,096 iter" in seen(
        preview
    )
    assert "The cluster checks this change when it is carried out." in seen(preview)
    command = "ottla user create ann --mechanism SCRAM-SHA-512 --iterations 4096 # asks for the password"
    assert command in seen(preview)
    assert admin.passwords == {}
    with caplog.at_level(logging.DEBUG):
        answer = browser.client.post(
            CREATE,
            data={"form_value": browser.door.form_value, **hidden_fields(preview), "step": "apply"},
            headers={"origin": ORIGIN},
        )
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert "location" not in answer.headers
    password = password_in(answer.text)
    assert admin.passwords == {("ann", "SCRAM-SHA-512"): password}
    assert len(password) >= 32
    assert password not in caplog.text
    assert "user ann has a new password for SCRAM-SHA-512" in caplog.text
    again = browser.do_it(CREATE, preview, 400)  # as by a reload
    assert "user 'ann' exists" in seen(again)
    for page in (again, browser.read("/access"), browser.read("/overview")):
        assert password not in page


def test_each_password_is_another_one() -> None:
    admin = WithUsers()
    browser = browser_of(admin)
    made = set()
    for name in ("ann", "bob"):
        fields = NEW_ANN | {"user": name, "mechanism": "both"}
        made.add(password_in(browser.change(CREATE, 200, **fields)))
        assert admin.passwords[name, "SCRAM-SHA-256"] == admin.passwords[name, "SCRAM-SHA-512"]
    assert len(made) == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"user": " "}, "'user' is missing"),
        ({"user": "bob"}, "user 'bob' exists, with a password for SCRAM-SHA-512: set a new password"),
        ({"iterations": "100"}, "'iterations' is 4096 to 16384, not 100"),
        ({"mechanism": "PLAIN"}, "'mechanism' is one of SCRAM-SHA-256, SCRAM-SHA-512, both, not 'PLAIN'"),
    ],
)
def test_a_user_that_cannot_be_created(fields: dict[str, str], reason: str) -> None:
    admin = WithUsers(BOB)
    assert reason in seen(browser_of(admin).send(CREATE, 400, **(NEW_ANN | fields), step="preview"))
    assert admin.changes() == []


def test_a_new_password_is_for_all_mechanisms_of_the_user() -> None:
    admin = WithUsers(ANN, ANN_TOO, BOB)
    browser = browser_of(admin)
    address = f"/access/users/password{OF_ANN}"
    assert 'name="iterations" value="8192"' in browser.read(address)
    preview = seen(browser.send(address, iterations="8192", step="preview"))
    assert "Clients with the present password cannot log in any more." in preview
    assert "This console logs in" not in preview
    assert "--mechanism SCRAM-SHA-512 --mechanism SCRAM-SHA-256" in preview
    password = password_in(browser.change(address, 200, iterations="8192"))
    assert admin.passwords == dict.fromkeys([("ann", "SCRAM-SHA-256"), ("ann", "SCRAM-SHA-512")], password)
    assert "there is no user &#39;eve&#39;" in browser.read("/access/users/password?user=eve", 404)


def test_a_user_is_deleted_after_the_name_was_typed() -> None:
    admin = WithUsers(ANN, ANN_TOO, BOB)
    admin.acls = [READS, READS._replace(principal="User:bob")]
    browser = browser_of(admin)
    address = f"/access/users/delete{OF_ANN}"
    assert "the name is ann, not 'bob'" in seen(browser.send(address, 400, again="bob", step="preview"))
    preview = seen(browser.send(address, again="ann", step="preview"))
    assert "Clients of ann cannot log in any more. ACLs of User:ann stay: 1." in preview
    assert "password for SCRAM-SHA-256 4,096 iterations nothing" in preview
    assert "ottla user delete ann" in preview
    assert "user ann was deleted" in seen(browser.read(browser.change(address, again="ann")))
    assert list(admin.logins.values()) == [BOB]


def test_a_user_that_somebody_else_has_changed_is_shown_again() -> None:
    admin = WithUsers(ANN)
    browser = browser_of(admin)
    for address, fields in (
        (f"/access/users/delete{OF_ANN}", {"again": "ann"}),
        (f"/access/users/password{OF_ANN}", {"iterations": "4096"}),
    ):
        preview = browser.send(address, **fields)
        admin.logins["ann", "SCRAM-SHA-512"] = replace(ANN, iterations=16_384)
        again = browser.do_it(address, preview, 409)
        assert "Not done: password for SCRAM-SHA-512" in seen(again)
        admin.logins["ann", "SCRAM-SHA-512"] = ANN
    preview = browser.send(CREATE, **(NEW_ANN | {"user": "bob"}))
    admin.logins["bob", "SCRAM-SHA-512"] = BOB
    assert "user 'bob' exists" in seen(browser.do_it(CREATE, preview, 400))
    assert admin.changes() == []


def test_the_login_of_the_console_is_named() -> None:
    admin = WithUsers(ANN)
    browser = browser_of(admin)
    object.__setattr__(browser.session, "connection", {"sasl_plain_username": "ann"})
    page = seen(browser.send(f"/access/users/delete{OF_ANN}", again="ann"))
    assert "This console logs in as ann." in page


def test_without_an_authorizer_users_are_deleted_too() -> None:
    admin = WithUsers(ANN)
    admin.refusal = KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer")
    preview = browser_of(admin).send(f"/access/users/delete{OF_ANN}", again="ann")
    assert "ACLs of" not in seen(preview)


def test_names_that_strangers_choose_are_text() -> None:
    admin = WithUsers(UserLogin(HOSTILE, "SCRAM-SHA-512", 4096))
    browser = browser_of(admin)
    for page in ("/access", "/access/users/delete", "/access/users/password"):
        text = browser.client.get(page, params={"user": HOSTILE}).text
        assert "<script>alert" not in text
        assert "<img" not in text


def test_a_console_that_only_reads_has_no_forms() -> None:
    browser = Browser(WithUsers(ANN)).enter()
    page = browser.read("/access")
    assert "ann" in page
    assert "/access/users" not in page
    browser.read(CREATE, 403)
