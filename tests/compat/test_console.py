"""The console's pages for Kafka show the same, and hide features that Kafka does not have."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import httpx2
import pytest

from ottla import Admin, Producer
from ottla.console.pages import all_areas
from ottla.console.security import ListenAddress, door_of
from tests.compat.conftest import Topics
from tests.console.fakes import ORIGIN, TOKEN, app_behind_token, hidden_fields, seen, session_with


class AsyncBrowser:
    """A browser that has entered, and sends forms as browsers do."""

    def __init__(self, client: httpx2.AsyncClient, form_value: str) -> None:
        self._client, self._form_value = client, form_value

    async def read(self, address: str) -> str:
        answer = await self._client.get(address)
        assert answer.status_code == 200, answer.text
        return seen(answer.text)

    async def send(self, address: str, **fields: str) -> str:
        """Send a form, and return the resulting page."""
        return seen(await self._sent(address, **fields))

    async def change(self, address: str, **fields: str) -> str:
        """Send a form, confirm its preview, and return the resulting page."""
        preview = await self._sent(address, **fields)
        return seen(await self._sent(address, **hidden_fields(preview), step="apply"))

    async def _sent(self, address: str, **fields: str) -> str:
        data = {"form_value": self._form_value, **fields}
        answer = await self._client.post(address, data=data, headers={"origin": ORIGIN})
        if answer.status_code == 303:
            answer = await self._client.get(answer.headers["location"])
        assert answer.status_code == 200, seen(answer.text)
        return answer.text


@pytest.fixture
async def browser(admin: Admin, bootstrap: str) -> AsyncIterator[AsyncBrowser]:
    door = door_of(ListenAddress("127.0.0.1", 9280), token=TOKEN)
    session = session_with(admin, door, all_areas(), connection={"bootstrap_servers": bootstrap})
    app = app_behind_token(session, door, all_areas(), may_change=True)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=ORIGIN) as client:
        await client.get("/", params={"token": TOKEN})
        yield AsyncBrowser(client, door.form_value)
    await session.sampler.stop()


async def test_the_overview(browser: AsyncBrowser) -> None:
    page = await browser.read("/overview")
    assert "controller" in page
    assert "leader" in page.partition("Metadata quorum")[2]


async def test_every_area_that_is_in_the_navigation_can_be_read(browser: AsyncBrowser) -> None:
    page = await browser.read("/overview")
    navigation = page.partition("Overview")[2].partition("This console")[0]
    for area in all_areas():
        if area.title in navigation:
            await browser.read(area.parts[0].path)


async def test_records_of_transactions_are_marked(
    browser: AsyncBrowser, bootstrap: str, topics: Topics
) -> None:
    name = await topics()
    async with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        async with producer.transaction():
            await producer.send(name, b"kept")
        await producer.begin_transaction()
        await producer.send(name, b"dropped")
        await producer.flush()
        await producer.abort_transaction()
    page = await browser.read(f"/messages?topic={name}&from=start")
    assert "2 shown of 2 records read" in page
    assert page.count("aborted") == 1
    assert ("commit " in page) == ("Spark" in page)  # only Ottla has an order of commits, and that page


async def test_a_topic_is_created_changed_and_trimmed(browser: AsyncBrowser, bootstrap: str) -> None:
    name = f"t-{uuid.uuid4().hex}"
    fields = {"topic": name, "partitions": "2", "replicas": "1", "settings": "retention.ms=60000"}
    assert f"ottla topic create {name}" in await browser.send("/topics/create", step="preview", **fields)
    assert name not in await browser.read("/topics")
    assert "was created" in await browser.change("/topics/create", **fields)
    address = f"/topics/topic?name={name}"
    assert "retention.ms 60000 topic" in await browser.read(address)
    changed = await browser.change(f"/topics/alter?name={name}", settings="segment.ms=70000")
    assert "segment.ms 70000 topic" in changed
    assert "retention.ms 60000" not in changed
    await browser.change(f"/topics/partitions?name={name}", total="3")
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for partition in range(3):
            await producer.send_and_wait(name, b"x", partition=partition)
    preview = await browser.send(f"/topics/trim?name={name}", step="preview", offset="end")
    assert preview.count("up to 1 records are deleted") == 3
    await browser.change(f"/topics/trim?name={name}", offset="end")
