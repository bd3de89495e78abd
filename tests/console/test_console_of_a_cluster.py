"""The console as users run it: `ottla console` with a real cluster, over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from ottla import NewTopic, TopicPartition
from ottla.sync import Admin, Producer
from ottla.testing import LocalCluster
from tests.console.fakes import hidden_fields, seen, target

PATIENCE_S = 60.0

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


class HttpBrowser:
    """A client that follows redirects and keeps cookies."""

    def __init__(self, address: str, *, is_in: bool = True) -> None:
        self.origin = address.partition("/?")[0]
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        if is_in:
            self._opener.open(address, timeout=PATIENCE_S).close()

    def read(self, address: str) -> str:
        with self._opener.open(self.origin + address, timeout=PATIENCE_S) as answer:
            text: str = answer.read().decode()
        return text

    def send(self, address: str, **fields: str) -> str:
        """Fill in and send the page's form."""
        value = re.search(r'name="form_value" value="([\w-]+)"', self.read(address))
        assert value is not None
        return self.post(address, form_value=value[1], **fields)

    def change(self, address: str, **fields: str) -> str:
        """Fill in the page's form, view its preview, and confirm it."""
        preview = self.send(address, step="preview", **fields)
        return self.post(address, **hidden_fields(preview), step="apply")

    def post(self, address: str, **fields: str) -> str:
        data = urllib.parse.urlencode(fields).encode()
        request = urllib.request.Request(self.origin + address, data, {"Origin": self.origin})
        with self._opener.open(request, timeout=PATIENCE_S) as answer:
            text: str = answer.read().decode()
        return text

    def events(self, address: str) -> Iterator[dict[str, str]]:
        """Yield the data of a page's events, without an end."""
        with self._opener.open(self.origin + "/events" + address, timeout=PATIENCE_S) as stream:
            for line in stream:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    def wait_for_news(self, address: str, text: str) -> None:
        """Return once an open page has got this text, and showed no error before."""
        for event in self.events(address):
            assert not event.get("text"), event
            if text in event.get("html", ""):
                return

    def until(self, address: str, is_so: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                page = seen(self.read(address))
            except urllib.error.HTTPError as error:
                page = seen(error.read().decode())
            if is_so(page):
                return page
            assert time.monotonic() < deadline, page
            time.sleep(0.2)


def people_sign_in(folder: Path, log: Path) -> None:
    """Check another console of the same cluster, in which users sign in with their own password."""
    words = [
        sys.executable,
        "-m",
        "ottla",
        "console",
        "--login",
        "--allow-changes",
        "--listen",
        "127.0.0.1:0",
    ]
    environment = {**os.environ, "OTTLA_CONFIG_DIR": str(folder / "client")}
    password = (folder / "client" / "admin.password").read_text().strip()
    with (
        log.open("w") as errors,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process,
    ):
        try:
            assert process.stdout is not None
            browser = HttpBrowser(process.stdout.readline().strip().rstrip("/"), is_in=False)
            for given, reason in (("guess", "knows no such user"), ("", "password are needed")):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    browser.post("/login", user="admin", password=given)
                assert reason in refused.value.read().decode()
            assert "Overview" in browser.post("/login?next=/overview", user="admin", password=password)
            topic = {"topic": "signed", "partitions": "1", "replicas": "1"}
            assert "topic signed was created" in seen(browser.change("/topics/create", **topic))
            events = browser.events("/topics")
            assert any("signed" in event.get("html", "") for event in events)
            value = re.search(r'name="form_value" value="([\w-]+)"', browser.read("/topics"))
            assert value is not None
            assert "password" in browser.post("/logout", form_value=value[1])
            for _ in events:  # they end with the session
                pass
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, log.read_text()
    events_text = log.read_text()
    assert '\\"user\\": \\"admin\\", \\"action\\": \\"/topics/create\\"' in events_text
    assert password not in events_text


@contextmanager
def console(cluster: LocalCluster, *options: str, log: Path) -> Iterator[str]:
    """Run a console, and yield its printed address."""
    words = [sys.executable, "-m", "ottla", "console", "-b", cluster.bootstrap_servers]
    words += ["--listen", "127.0.0.1:0", *options]
    with log.open("w") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, log.read_text()
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, log.read_text()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as found:
        yield found


def test_a_topic_from_its_creation_to_its_end(cluster: LocalCluster, tmp_path: Path) -> None:
    log, login = tmp_path / "log", tmp_path / "login"
    login.write_text("me:secret\n")
    registry = ["--schema-registry", "http://127.0.0.1:1", "--schema-registry-login-file", str(login)]
    with console(cluster, "--allow-changes", *registry, log=log) as address:
        browser = HttpBrowser(address)
        fields = {"topic": "orders", "partitions": "3", "replicas": "3", "settings": "retention.ms=60000"}
        preview = browser.send("/topics/create", step="preview", **fields)
        assert "ottla topic create orders -p 3 -r 3" in seen(preview)
        assert "orders" not in browser.read("/topics")
        assert "topic orders was created" in seen(browser.change("/topics/create", **fields))

        page = browser.until("/topics/topic?name=orders", lambda page: page.count(" 0 0 0 0 B ") == 3)
        assert "retention.ms 60000 topic" in page

        again = browser.change("/topics/alter?name=orders", settings="retention.ms=70000")
        assert "retention.ms 70000 topic" in seen(again)
        assert "4 partitions" in seen(browser.change("/topics/partitions?name=orders", total="4"))

        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(21):
                producer.send("orders", b"\0\0\0\0\x07%d" % number, partition=number % 3)
        browser.until("/topics/topic?name=orders", lambda page: page.count(" 0 7 7 ") == 3)
        with Producer(bootstrap_servers=cluster.bootstrap_servers, audit_topic="audit") as producer:
            hour_ago_ms = int(time.time() * 1000) - 3_600_000
            producer.send_and_wait("orders", b"counted", partition=0, timestamp_ms=hour_ago_ms)
        query = f"spark-{uuid.uuid4()}"
        with (
            Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=query) as producer,
            producer.transaction(app_version=41),
        ):
            producer.send("orders", b"counted")
        browser.until("/spark", lambda page: f"{query[6:]} format('ottla') 41 CompleteCommit" in page)
        browser.wait_for_news("/messages/live?topic=orders", "counted")
        browser.until("/audits", lambda page: "orders: there is no tier to compare 'producer' with" in page)
        page = seen(browser.read("/messages?topic=orders"))
        assert "20 shown" in page
        assert "schema 7: the registry: " in page
        assert "secret" not in page
        assert "were trimmed" in seen(browser.change("/topics/trim?name=orders", offset="end"))
        assert "was deleted" in seen(browser.change("/topics/delete?name=orders", again="orders"))
        browser.until("/topics", lambda page: "orders" not in page)
    changes = [line for line in log.read_text().splitlines() if "change_log" in line]
    actions = ("create", "alter", "partitions", "trim", "delete")
    assert len(changes) == len(actions)
    for line, action in zip(changes, actions, strict=True):
        assert f"/topics/{action}" in line


def test_open_pages_see_a_broker_die_and_come_back(cluster: LocalCluster, tmp_path: Path) -> None:
    with console(cluster, log=tmp_path / "log") as address:
        browser = HttpBrowser(address)
        browser.until("/overview", lambda page: "3 active 127.0.0.1" in page)
        events = browser.events("/overview")
        next(events)
        cluster.kill(3)
        try:
            assert any("broker 3 is fenced" in event.get("html", "") for event in events)
            assert re.search(
                r"3 fenced since 20\S+ \S+ UTC \(\d+ s\) 127\.0\.0\.1", seen(browser.read("/overview"))
            )
        finally:
            cluster.restart(3)
        browser.until("/overview", lambda page: "broker 3 is no longer fenced" in page)


def test_three_clicks_tell_which_topic_grows_who_reads_it_and_how_far_behind(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with (
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        console(cluster, log=tmp_path / "log") as address,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        admin.create_topics([NewTopic("sensors", 2, 1), NewTopic("visits", 2, 1)])
        for name in ("sensors", "visits"):
            admin.alter_offsets(f"reader of {name}", {TopicPartition(name, 0): 0})
        browser = HttpBrowser(address)

        def grown() -> str:
            for number in range(40):
                producer.send("sensors" if number % 4 else "visits", b"x", partition=0)
            producer.flush()
            page = browser.read(target(browser.read("/overview"), "Topics"))
            return browser.read(target(page, "records in"))

        deadline = time.monotonic() + PATIENCE_S
        while not re.search(r"visits healthy .* [\d.]*[1-9][\d.]*/s", seen(page := grown())):
            assert time.monotonic() < deadline, seen(page)
            time.sleep(0.2)
        assert 0 < page.index(">sensors</a>") < page.index(">visits</a>")
        found = seen(browser.read(target(page, "sensors")))
        lag = re.search(r"reader of sensors Empty 0 ([\d,]+) ", found)
        assert lag is not None, found
        assert int(lag[1].replace(",", "")) >= 30
        assert "reader of visits" not in found
        assert "records per second" in found


@contextmanager
def cluster_with_console(tmp_path: Path) -> Iterator[str]:
    """Run `ottla up --console`, and yield the console's address."""
    words = [sys.executable, "-m", "ottla", "up", "--quorum", "1", "--brokers", "1", "--combined"]
    words += ["--secure", "--console=changes", "--data", str(tmp_path / "data")]
    with (tmp_path / "log").open("w") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("127.0.0.1:")
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, (tmp_path / "log").read_text()


def test_up_starts_one_beside_a_secured_cluster_and_ends_it(tmp_path: Path) -> None:
    with cluster_with_console(tmp_path) as address:
        browser = HttpBrowser(address)
        browser.until("/overview", lambda page: "101 leader 127.0.0.1" in page)
        created = browser.change("/topics/create", topic="orders", partitions="1", replicas="1")
        assert "topic orders was created" in seen(created)
        # The metrics endpoint tells bytes, which end offsets do not.
        browser.until("/overview", lambda page: "bytes out 0 B/s" in page)
        people_sign_in(tmp_path / "data", tmp_path / "log of logins")
    with pytest.raises(urllib.error.URLError):
        browser.read("/overview")
    assert '\\"user\\": \\"admin\\"' in (tmp_path / "data" / "console.log").read_text()
    with cluster_with_console(tmp_path) as again:
        assert again == address, "a bookmark still works"
        HttpBrowser(again).until("/overview", lambda page: "101 leader 127.0.0.1" in page)
