"""The plugin in separate pytest runs: the examples of the pages, isolation, broken clusters, options, costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tests.cluster import processes_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/TESTING_YOUR_CODE.md")
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PLUGIN = ("-p", "ottla.testing.pytest_plugin")


def run_pytest(folder: Path, *arguments: str, ini: str = "") -> subprocess.CompletedProcess[str]:
    """Run the tests in `folder`, which also holds temporary files. Only the named plugins are loaded."""
    (folder / "pytest.ini").write_text(f"[pytest]\nasyncio_default_fixture_loop_scope = function\n{ini}")
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    plugins = (*PLUGIN, "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def check_nothing_is_left(folder: Path) -> None:
    """Check that no process and no cluster folder is left."""
    assert processes_of(folder) == []
    assert list((folder / "temporary").glob("ottla-*")) == []


def test_the_entry_point_names_a_module_that_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, module in project["entry-points"]["pytest11"].items():
        assert name == "ottla"
        assert import_module(module).pytest_addoption


@pytest.mark.cluster
def test_the_examples_of_the_pages(tmp_path: Path) -> None:
    every = [block for page in PAGES for block in PYTHON_BLOCK.findall((ROOT / page).read_text())]
    blocks = [block for block in every if "def test_" in block]
    assert len(blocks) >= 5
    for number, block in enumerate(blocks):
        (tmp_path / f"test_example_{number}.py").write_text(block)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(blocks)} passed" in done.stdout
    check_nothing_is_left(tmp_path)


ISOLATION = """\
import pytest
from ottla.client.admin import Admin

names = []

@pytest.mark.parametrize("time", range(2))
def test_names_are_never_the_same(ottla, time):
    new = [ottla.topic("orders", partitions=2), ottla.topic("orders"), ottla.unique("orders")]
    assert all(name.startswith("orders-") for name in new)
    names.extend(new)
    assert len(set(names)) == len(names)

def test_a_test_may_delete_its_topic_and_break_the_cluster(ottla):
    ottla.cluster.delete_topics(ottla.topic())
    ottla.topic()
    ottla.cluster.create_topic(ottla.unique("of-the-program"))
    ottla.cluster.kill(1)

def test_the_next_one_finds_it_well(ottla):
    assert ottla.cluster.leader(ottla.topic()) == 1
    ottla.cluster.pause(1)

@pytest.mark.asyncio
async def test_topics_are_gone_after_their_tests(ottla):
    mine = ottla.topic()
    async with Admin(bootstrap_servers=ottla.bootstrap_servers) as admin:
        assert await admin.list_topics() == [mine]

@pytest.mark.parametrize("name", ["", "a b", "x" * 201])
def test_names_that_kafka_refuses(ottla, name):
    with pytest.raises(ValueError, match="a name is 1 to 200 letters"):
        ottla.topic(name)

def test_the_cluster_is_one_for_the_session(ottla, ottla_cluster):
    assert ottla.cluster is ottla_cluster
"""


@pytest.mark.cluster
def test_tests_do_not_see_each_other(tmp_path: Path) -> None:
    (tmp_path / "test_isolation.py").write_text(ISOLATION)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout
    check_nothing_is_left(tmp_path)


DEATH = """\
names = []

def test_a_node_dies_by_itself(ottla):
    names.append(ottla.topic())
    ottla.cluster._nodes[1].kill9()

def test_its_topics_are_gone_all_the_same(ottla):
    ottla.cluster.create_topic(names[0])
    ottla.cluster.delete_topics(names[0])
"""


@pytest.mark.cluster
def test_a_node_that_dies_is_told_of_and_the_topics_of_its_test_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "test_death.py").write_text(DEATH)
    done = run_pytest(tmp_path)
    assert "2 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "broker 1 died by itself" in done.stdout
    check_nothing_is_left(tmp_path)


SIZE = """\
def test_size(ottla_cluster):
    assert ottla_cluster.broker_ids == [1, 2]
    assert ottla_cluster.quorum_ids == [101]
    ottla_cluster.create_topic("three", partitions=-1)
    assert ottla_cluster.leader("three", 2) in (1, 2)
"""


@pytest.mark.cluster
def test_options_win_over_the_ini_file(tmp_path: Path) -> None:
    (tmp_path / "test_size.py").write_text(SIZE)
    ini = "ottla_brokers = 5\nottla_settings =\n    num.partitions=3\n    log.segment.bytes = 1048576\n"
    done = run_pytest(tmp_path, "--ottla-brokers", "2", ini=ini)
    assert done.returncode == 0, done.stdout + done.stderr


SECURED = """\
from confluent_kafka import Producer

def test_it_is_secured(ottla):
    assert ottla.client_options["security_protocol"] == "SASL_SSL"
    assert ottla.aiokafka_options["ssl_context"]
    producer = Producer(ottla.confluent_options)
    producer.produce(ottla.topic(), b"v")
    assert producer.flush(30) == 0
"""


@pytest.mark.cluster
def test_the_cluster_may_be_secured(tmp_path: Path) -> None:
    (tmp_path / "test_secured.py").write_text(SECURED)
    done = run_pytest(tmp_path, ini="ottla_security = sasl_ssl\n")
    assert done.returncode == 0, done.stdout + done.stderr
    check_nothing_is_left(tmp_path)


AS_IN_THE_PAGE = """\
def test_size(ottla_cluster):
    assert ottla_cluster.broker_ids == [1, 2, 3]
    assert ottla_cluster.quorum_ids == [101, 102, 103]
"""


@pytest.mark.cluster
def test_the_settings_that_the_page_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs/TESTING_YOUR_CODE.md").read_text()
    [settings] = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(settings)
    (tmp_path / "test_size.py").write_text(AS_IN_THE_PAGE)
    done = run_pytest(tmp_path, "-c", "pyproject.toml")
    assert done.returncode == 0, done.stdout + done.stderr


WORKERS = """\
from pathlib import Path

def test_on_every_worker(ottla):
    address = ottla.bootstrap_servers.replace(":", "_")
    Path(__file__).with_name(f"has-{address}").touch()
"""


@pytest.mark.cluster
def test_every_xdist_worker_has_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "test_workers.py").write_text(WORKERS)
    done = run_pytest(tmp_path, "-p", "xdist", "-n", "2", "--dist", "each")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("has-*"))) == 2
    check_nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "ini", "message"),
    [
        (("--ottla-brokers", "0"), "", "ottla_cluster: brokers is 1 to 100, not 0"),
        ((), "ottla_quorum_nodes = two\n", "ottla_quorum_nodes in .* is a number, not 'two'"),
        ((), "ottla_settings = num.partitions\n", "has lines of key=value, not 'num.partitions'"),
        (("--ottla-security", "tls"), "", "security is sasl_ssl, ssl, sasl_plaintext or None, not 'tls'"),
        ((), "ottla_settings = num.partitions=none\n", "'none' for configuration num.partitions"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, arguments: tuple[str, ...], ini: str, message: str) -> None:
    (tmp_path / "test_size.py").write_text(SIZE)
    done = run_pytest(tmp_path, *arguments, ini=ini)
    assert done.returncode == 1
    assert re.search(message, done.stdout), done.stdout


def test_it_costs_nothing_where_nobody_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_other():\n"
        "    loaded = {name for name in sys.modules if name.startswith('ottla.')}\n"
        "    assert loaded == {'ottla.cli', 'ottla.cli.local_cluster', 'ottla.cli.local_cluster.liveness',\n"
        "        'ottla.testing', 'ottla.testing.failures', 'ottla.testing.launching',\n"
        "        'ottla.testing.local_cluster', 'ottla.testing.nodes', 'ottla.testing.processes',\n"
        "        'ottla.testing.pytest_plugin', 'ottla.version'}\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
