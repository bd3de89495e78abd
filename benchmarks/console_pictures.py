"""Pictures of the console for the docs: the overview, records, a topic in dark mode while a broker is away, and
Security.

    python -m benchmarks.console_pictures [--folder docs/images]

The first three show the cluster of `benchmarks.console_demo`, some two minutes after its start. The last shows one
broker with encrypted and authenticated listeners. Needs Chromium and Playwright.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ottla import (
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    Admin,
    NewTopic,
    PatternType,
    UserPassword,
)

from .clusters import Cluster, ottla_cluster
from .console import CHROMIUM, console
from .console_demo import AWAY_S, FLIGHTS, WELL_S, run
from .secured_clusters import AUTHORIZER, secured_ottla

if TYPE_CHECKING:
    from playwright.async_api import FloatRect, Page

FOLDER: Final = Path(__file__).parents[1] / "docs" / "images"
WIDTH, HEIGHT_MAX = 1440, 900
"""Pixels. Longer pages are cut off."""
SECOND_FAULT_S: Final = 2 * (WELL_S + AWAY_S)
"""Time at which the second broker is down, if the first was the demo's first."""
PATIENCE_S: Final = SECOND_FAULT_S + 60.0


@asynccontextmanager
async def page_of(address: str, scheme: Literal["light", "dark"]) -> AsyncIterator[Page]:
    """Open the console in a browser that has logged in."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT_MAX})
        page.set_default_timeout(PATIENCE_S * 1000)
        await page.goto(address)
        yield page
        await browser.close()


async def take(page: Page, file: Path) -> None:
    """Take a picture of the page, up to HEIGHT_MAX."""
    height = await page.evaluate("document.documentElement.scrollHeight")
    clip: FloatRect = {"x": 0, "y": 0, "width": WIDTH, "height": min(height, HEIGHT_MAX)}
    await page.screenshot(path=file, clip=clip, full_page=True)
    print(file, flush=True)


# ---------------------------------------------------------------- flights, and killed brokers


async def picture_the_demo(cluster: Cluster, address: str, folder: Path) -> None:
    """Take the overview once the first broker is back, and a topic while the second is away."""
    origin = address.partition("/?")[0]
    first, second = cluster.brokers[:2]
    async with page_of(address, "light") as overview, page_of(address, "dark") as topic:
        await overview.goto(f"{origin}/overview")
        await topic.goto(f"{origin}/topics/topic?name={FLIGHTS}")
        await overview.get_by_text(f"broker {first.id} is fenced").first.wait_for()
        await overview.get_by_text("All partitions are healthy").wait_for()
        await take(overview, folder / "console-overview.png")
        await overview.goto(f"{origin}/messages?topic={FLIGHTS}&from=newest&count=50")
        await overview.locator("tbody tr").nth(20).wait_for()
        await take(overview, folder / "console-messages.png")
        await topic.get_by_text(f"without {second.id}").first.wait_for()
        await take(topic, folder / "console-topic.png")


async def show_the_demo(cluster: Cluster, address: str, folder: Path) -> None:
    """Run the demo until both pictures are taken."""
    running = asyncio.create_task(run(cluster))
    taking = asyncio.create_task(picture_the_demo(cluster, address, folder))
    await asyncio.wait({running, taking}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await taking


# ---------------------------------------------------------------- permissions


async def set_rules(cluster: Cluster) -> None:
    """Create some users, ACLs and quotas to show."""
    topics, groups = AclResourceType.TOPIC, AclResourceType.GROUP
    rules = [
        (topics, "orders", PatternType.LITERAL, "User:ann", AclOperation.READ, AclPermission.ALLOW),
        (groups, "orders-", PatternType.PREFIXED, "User:ann", AclOperation.READ, AclPermission.ALLOW),
        (topics, "orders", PatternType.LITERAL, "User:shop", AclOperation.WRITE, AclPermission.ALLOW),
        (topics, "payments", PatternType.LITERAL, "User:shop", AclOperation.ALL, AclPermission.DENY),
    ]
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", 6), NewTopic("payments", 3)])
        await admin.create_acls(
            [Acl(kind, name, pattern, who, "*", what, says) for kind, name, pattern, who, what, says in rules]
        )
        await admin.alter_scram_credentials(
            [UserPassword(user, f"the password of {user}", "SCRAM-SHA-512") for user in ("ann", "shop")]
        )
        await admin.alter_quotas({"client-id": "import"}, {"producer_byte_rate": 10 * 2**20})
        await admin.alter_quotas({"user": "ann", "client-id": None}, {"consumer_byte_rate": 50 * 2**20})


async def picture_security(cluster: Cluster, address: str, folder: Path) -> None:
    """Show that Ann may read, and ask if she may write."""
    await set_rules(cluster)
    async with page_of(address, "light") as page:
        await page.goto(f"{address.partition('/?')[0]}/access")
        await page.fill("#principal", "ann")
        await page.select_option("#operation", "WRITE")
        await page.fill("#of", "orders")
        await page.get_by_role("button", name="Check").click()
        await page.get_by_text("denied").wait_for()
        await page.get_by_text("valid", exact=True).first.wait_for()
        await take(page, folder / "console-security.png")


def watched(cluster: Cluster) -> list[str]:
    """Return the options of a console that reads the metrics of all nodes and allows changes."""
    nodes = (*cluster.brokers, *cluster.quorum)
    return ["--allow-changes", *(word for node in nodes for word in ("--metrics", node.metrics))]


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    options.add_argument("--folder", type=Path, default=FOLDER, help="where they go (docs/images)")
    folder = options.parse_args().folder
    with tempfile.TemporaryDirectory(prefix="ottla-console-") as temporary:
        data = Path(temporary)
        with (
            secured_ottla(data / "secured", settings=AUTHORIZER) as cluster,
            console(cluster.bootstrap, data / "secured.log", *watched(cluster)) as (_, address),
        ):
            asyncio.run(picture_security(cluster, address, folder))
        with (
            ottla_cluster(data / "demo") as cluster,
            console(cluster.bootstrap, data / "demo.log", *watched(cluster)) as (_, address),
        ):
            asyncio.run(show_the_demo(cluster, address, folder))


if __name__ == "__main__":
    main()
