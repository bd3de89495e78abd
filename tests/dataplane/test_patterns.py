"""Patterns from clients: none of them blocks the event loop, in any API."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane import patterns
from ottla.dataplane.groups.consumer import pattern_searches
from ottla.dataplane.groups.consumer.member import HeartbeatReply, MemberHeartbeat
from ottla.dataplane.groups.consumer.subscriptions import PatternOf, TopicCatalog
from ottla.dataplane.groups.dependencies import GroupDependencies
from ottla.dataplane.groups.limits import GroupLimits
from ottla.dataplane.groups.shard import Shard
from ottla.dataplane.handlers.alter_configs import _check_client_metrics
from ottla.dataplane.handlers.describe_transactions import DescribeTransactionsHandlers
from ottla.dataplane.handlers.failback import FailbackHandlers
from ottla.dataplane.handlers.mirrors import MirrorHandlers
from ottla.dataplane.patterns import (
    PROGRAM_MAX,
    TURN_WORK_MAX,
    Pattern,
    compile_pattern,
    compile_stored_pattern,
)
from ottla.dataplane.runtime.matching import matching
from ottla.protocol import messages
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.config_commands import ConfigChange, ConfigOperation, ConfigResource
from ottla.protocol.messages.failback import DescribeLineagesRequest, FailBackMirrorRequest
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from ottla.protocol.messages.mirrors import CreateMirrorRequest
from ottla.protocol.messages.transaction_descriptions import ListTransactionsRequest
from tests.dataplane.groups.test_consumer_group import Topics, new_group
from tests.dataplane.groups.test_shard import Clock, MemoryLog

TOO_MUCH = [
    "(.?){1000}",
    "(a?){1000}(b?){1000}",
    r"\pL{1000}",
    r"(?i)[\pL\pN]{500}",
    "((a{0,100}){0,10}){0,1}" * 3,
    "x{100}" * 65,
    r"\pL" * 65,
    ".?" * 2000,
    "a" * 20_000,
]
"""Patterns that take a second or more of the loop, to compile or to match with a cluster's topics."""
SLOW = ["[ab]*a[ab]{150}", "(?:a?b?c?d?){200}", "(.?){300}", "(a|b|ab)*" * 600, "(.*)*" * 2000]
"""Patterns that may be matched, and take long with many names."""
NAMES = ["".join("ab"[(number >> bit) & 1] for bit in range(12)) * 16 for number in range(400)]


def topics_named(names: list[str]) -> ClusterImage:
    image = ClusterImage()
    for number, name in enumerate(names):
        topic_id = (number + 1).to_bytes(16, "big")
        image.apply(TopicRecord(topic_id=topic_id, name=name))
        image.apply(PartitionRecord(topic_id=topic_id, partition=0, replicas=[1], isr=[1], leader=1))
    return image


def request() -> Any:
    access = SimpleNamespace(allows=lambda *_, **__: True, may_describe_some=lambda _: True)
    return SimpleNamespace(access=access)


# ------------------------------------------------------------ every API that takes a pattern


async def heartbeat(regex: str) -> int:
    """Return how many topics the answer assigns. Raises KafkaError."""
    catalog = TopicCatalog(later=asyncio.get_running_loop().call_soon)
    image = topics_named(NAMES)
    catalog.update(image, image.topics_by_id)
    shard = Shard(MemoryLog(), GroupLimits(), Clock(), GroupDependencies(catalog))
    await shard.load()
    replies: asyncio.Queue[HeartbeatReply | KafkaError] = asyncio.Queue()
    beat = MemberHeartbeat("m", 0, rebalance_timeout_ms=10_000, topics=(), regex=regex, owned=frozenset())
    shard.consumer.heartbeat("g", beat, replies.put_nowait)
    reply = await asyncio.wait_for(replies.get(), 60)
    shard.close()
    if isinstance(reply, KafkaError):
        raise reply
    return len(reply.assigned or ())


async def list_transactions(regex: str) -> None:
    image = ClusterImage()
    handlers = DescribeTransactionsHandlers(1, cast(Any, SimpleNamespace(image=image)), cast(Any, Ids()), int)
    handlers._answers_for = lambda _name: True  # type: ignore[method-assign]
    await handlers.list_ids(request(), ListTransactionsRequest(transactional_id_pattern=regex))


class Ids:
    async def ids(self, *_: object, **__: object) -> list[Any]:
        phase = Phase.ONGOING.value
        return [SimpleNamespace(transactional_id=name, producer_id=1, phase=phase) for name in NAMES]


async def describe_lineages(regex: str) -> None:
    replicas: Any = SimpleNamespace(find_by_id=lambda *_: None)
    quorum: Any = SimpleNamespace(image=topics_named(NAMES))
    handlers = FailbackHandlers(quorum, replicas, cast(Any, None))
    await handlers.describe(request(), DescribeLineagesRequest(topics=regex))


async def fail_back_mirror(regex: str) -> None:
    handlers = FailbackHandlers(cast(Any, Unreached()), cast(Any, None), cast(Any, None))
    for fields in ({"topics": regex}, {"topics": "t", "groups": regex}):
        await unreached(handlers.fail_back(request(), FailBackMirrorRequest(**fields)))


async def create_mirror(regex: str) -> None:
    handlers = MirrorHandlers(cast(Any, Unreached()), cast(Any, None), cast(Any, Unreached()))
    for fields in ({"topics": regex}, {"topics": "t", "groups": regex}):
        await unreached(handlers.create(request(), CreateMirrorRequest(**fields)))


class SourceAsked(Exception):
    pass


class Unreached:
    def __getattr__(self, name: str) -> Any:
        raise SourceAsked


async def unreached(answer: Awaitable[object]) -> None:
    try:
        await answer
    except SourceAsked:
        pass


async def client_metrics(regex: str) -> None:
    change = ConfigChange(name="match", operation=ConfigOperation.SET, value=f"client_id={regex}")
    await _check_client_metrics(ConfigResource(resource_type=16, resource_name="m", changes=[change]))


APIS: dict[str, Callable[[str], Awaitable[object]]] = {
    "ConsumerGroupHeartbeatRequest.subscribed_topic_regex": heartbeat,
    "ListTransactionsRequest.transactional_id_pattern": list_transactions,
    "DescribeLineagesRequest.topics": describe_lineages,
    "FailBackMirrorRequest.topics": fail_back_mirror,
    "FailBackMirrorRequest.groups": fail_back_mirror,
    "CreateMirrorRequest.topics": create_mirror,
    "CreateMirrorRequest.groups": create_mirror,
    "IncrementalAlterConfigsRequest: match of client metrics": client_metrics,
}


def test_every_pattern_of_a_request_is_tried_here() -> None:
    """A field is recognised as a pattern by its name, or by the words about it."""
    named = set()
    for path in (Path(messages.__file__).parent).glob("*.py"):
        for tree in ast.walk(ast.parse(path.read_text())):
            if not isinstance(tree, ast.ClassDef) or "request" not in map(_decorator, tree.decorator_list):
                continue
            for field in tree.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    words = ast.unparse(field).lower()
                    if "regular expression" in words or "re2" in words or "_pattern:" in words:
                        named.add(f"{tree.name}.{field.target.id}")
    assert named == {name for name in APIS if ":" not in name}


def _decorator(node: ast.expr) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("regex", TOO_MUCH, ids=[regex[:16] for regex in TOO_MUCH])
async def test_a_pattern_that_takes_too_much_is_refused_by_every_api(api: str, regex: str) -> None:
    with pytest.raises(KafkaError) as refused:
        await APIS[api](regex)
    is_config = api.endswith("client metrics")
    code = ErrorCode.INVALID_CONFIG if is_config else ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.code is code


class Turns:
    """A counter of the matching work on the event loop in each of its turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work, self.calls = [0], 0
        main, fullmatch = asyncio.get_running_loop(), Pattern.fullmatch

        def counted(pattern: Pattern, text: str) -> bool:
            self.calls += 1
            if asyncio._get_running_loop() is main:
                self.work[-1] += pattern.work(text)
            return fullmatch(pattern, text)

        monkeypatch.setattr(Pattern, "fullmatch", counted)
        main.call_soon(self._next)

    def _next(self) -> None:
        self.work.append(0)
        asyncio.get_running_loop().call_soon(self._next)


@pytest.mark.parametrize("call", [heartbeat, list_transactions, describe_lineages])
@pytest.mark.parametrize("regex", SLOW, ids=[regex[:16] for regex in SLOW])
async def test_no_turn_of_the_loop_matches_for_long(
    call: Callable[[str], Awaitable[object]], regex: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(monkeypatch)
    await call(regex)
    assert turns.calls == len(NAMES)
    longest_name = PROGRAM_MAX * 250
    assert max(turns.work) <= TURN_WORK_MAX + longest_name


async def test_the_first_answer_to_a_member_has_all_that_match() -> None:
    for regex in ("a.*", "(?:[ab]{12}){16}", "(.?){300}"):
        pattern = compile_pattern(regex, "")
        assert await heartbeat(regex) == sum(map(pattern.fullmatch, NAMES))


async def test_a_long_name_is_matched_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = compile_pattern("(?:a?b?c?d?){200}|x*", "")
    turns = Turns(monkeypatch)
    assert await matching(pattern, ["x" * 30_000, "ab", "y"]) == ["x" * 30_000, "ab"]
    assert max(turns.work) <= TURN_WORK_MAX


# ------------------------------------------------------------ searches of topics


async def test_a_search_that_takes_long_delays_no_other() -> None:
    later: list[Callable[[], None]] = []
    catalog = TopicCatalog(later=later.append)
    image = topics_named(NAMES)
    catalog.update(image, image.topics_by_id)
    ended: list[str] = []
    for regex in ("(.?){300}", "ab.*"):
        catalog.searches.begin(regex)
        catalog.searches.when_complete(regex, lambda regex=regex: ended.append(regex))  # type: ignore[misc]
    turns = 0
    while later:
        turns += 1
        later.pop(0)()
    assert ended == ["ab.*", "(.?){300}"]
    assert turns > 10


async def test_a_member_keeps_its_topics_while_they_are_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later: list[Callable[[], None]] = []
    catalog = TopicCatalog(later=later.append)
    image = topics_named(NAMES)
    catalog.update(image, image.topics_by_id)
    slow = PatternOf("(?:[ab]{12}){16}")
    assert not catalog.is_unresolved(slow) or len(catalog.resolve((), slow)) < len(NAMES)
    assert catalog.is_unresolved(slow)
    version = catalog.version
    while later:
        later.pop(0)()
    assert not catalog.is_unresolved(slow)
    assert catalog.version > version, "a matcher with an older state checks again"
    assert len(catalog.resolve((), slow)) == len(NAMES)


async def test_new_topics_alone_are_looked_at_when_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, image = TopicCatalog(), topics_named(NAMES)
    catalog.update(image, image.topics_by_id)
    pattern = PatternOf("a.*")
    before = len(catalog.resolve((), pattern))
    matched: list[str] = []
    fullmatch = Pattern.fullmatch
    monkeypatch.setattr(
        Pattern,
        "fullmatch",
        lambda pattern, text: matched.append(text) or fullmatch(pattern, text),  # type: ignore[func-returns-value]
    )
    topic_id = (5000).to_bytes(16, "big")
    image.apply(TopicRecord(topic_id=topic_id, name="a-new-one"))
    catalog.update(image, [topic_id])
    assert len(catalog.resolve((), pattern)) == before + 1
    assert matched == ["a-new-one"]


async def test_too_many_searches_at_a_time_are_put_off() -> None:
    later: list[Callable[[], None]] = []
    catalog = TopicCatalog(later=later.append)
    image = topics_named(NAMES)
    catalog.update(image, image.topics_by_id)
    for number in range(pattern_searches.OPEN_MAX):
        catalog.searches.begin(f"(.?){{300}}{number}")
    with pytest.raises(KafkaError) as refused:
        catalog.searches.begin("(.?){300}more")
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_member_whose_stored_pattern_is_refused_now_keeps_what_it_has() -> None:
    """An earlier release accepted it. Its client gets the error when it sends the pattern again."""
    topics = Topics(a=2, b=1)
    group = new_group(topics)
    group.heartbeat(member_beat("m", 0, regex="a"), 0)
    held = group.members["m"].assigned
    group.members["m"].regex = "(.?){1000}"
    topics.create("c", 1)
    group.heartbeat(member_beat("m", group.epoch), 1)
    assert group.members["m"].assigned == held == topics.all_of("a")
    with pytest.raises(KafkaError) as refused:
        group.heartbeat(member_beat("m", group.epoch, regex="(.?){1000}"), 2)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_mirror_goes_on_with_the_pattern_that_it_has() -> None:
    regex = "|".join(f"{number * 7919}-topic" for number in range(1000))
    assert compile_stored_pattern(regex, "topics").fullmatch("7919-topic")
    with pytest.raises(KafkaError):
        compile_pattern(regex, "topics")


def member_beat(member_id: str, epoch: int, regex: str | None = None) -> MemberHeartbeat:
    return MemberHeartbeat(member_id, epoch, rebalance_timeout_ms=10_000, topics=() if regex else None, regex=regex,
                           owned=frozenset() if regex else None)  # fmt: skip


# ------------------------------------------------------------ the only way

_PYTHONS = {
    "security/java_patterns.py": "rules of principals, which an operator writes in the node's own configuration",
}


def _sources() -> Iterator[tuple[str, ast.Module]]:
    root = Path(patterns.__file__).parent
    for path in sorted(root.rglob("*.py")):
        yield path.relative_to(root).as_posix(), ast.parse(path.read_text())


def test_brokers_compile_patterns_in_one_place() -> None:
    """`re2` is imported there alone; `re` has constants of the program, compiled when a module is loaded."""
    with_re2, with_re = set(), set()
    for name, tree in _sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported = [alias.name for alias in node.names] + [getattr(node, "module", None)]
                if "re2" in imported:
                    with_re2.add(name)
        for function in (
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ):
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id == "re"
                    and node.func.attr != "escape"
                    and not (node.args and isinstance(node.args[0], ast.Constant))
                ):
                    with_re.add(name)
    assert with_re2 == {"patterns.py"}
    assert with_re == set(_PYTHONS)
