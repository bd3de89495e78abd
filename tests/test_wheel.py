"""The wheel: it is built from this checkout, and tried in an environment that has nothing else of Ottla."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from ottla.cli.build import EXTENSIONS
from ottla.version import __version__

ROOT = Path(__file__).resolve().parents[1]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
NOT_PACKED = shutil.ignore_patterns(
    ".*", "__pycache__", "*.so", "*.egg-info", "build", "dist", "tests", "docs"
)

pytestmark = pytest.mark.xdist_group("wheel")


def has_compiler() -> bool:
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return shutil.which(os.environ.get("CC", "cc")) is not None and headers.is_file()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the checkout, without the extensions that are built there."""
    if not has_compiler():
        pytest.skip("a wheel with extensions needs a C compiler and Python's headers")
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", ignore=NOT_PACKED)
    build = ["wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder)]
    run([sys.executable, "-m", "pip", *build, str(folder / "source")])
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a new virtual environment. It finds the dependencies in the environment of the tests, in
    which Ottla itself is no package: it is the checkout."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    python = str(folder / "bin" / "python")
    install = ["install", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    run([sys.executable, "-m", "pip", "--python", python, *install])
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n"
    )
    return folder


def run(words: list[str]) -> str:
    # Where the checkout is on PYTHONPATH (tests of Spark set it for workers), pip finds Ottla installed already.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ["CFLAGS"] = "-O0 -g0"  # The extensions have to be quick to build, not to run.
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/", env=environ)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_wheel_has_all_parts(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"ottla/{name.replace('.', '/')}{SUFFIX}" for name in EXTENSIONS} <= names
    assert {"ottla/py.typed", "ottla/__init__.pyi", "pyspark_ottla/__init__.py"} <= names
    assert any(name.startswith("ottla/console/templates/") for name in names)
    assert not [
        name
        for name in names
        if name.split("/")[0] not in ("ottla", "pyspark_ottla", f"ottla-{__version__}.dist-info")
    ]


def test_the_installed_wheel_works_with_its_codec_in_c(environment: Path) -> None:
    (folder,) = environment.glob("lib/python*/site-packages/ottla")
    where = run([str(environment / "bin" / "python"), "-c", "import ottla; print(ottla.__file__)"])
    assert Path(where.strip()).parent == folder
    command = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["test-command"]
    told = run(["env", f"PATH={environment / 'bin'}:{os.environ['PATH']}", "sh", "-c", command])
    assert told.startswith(f"ottla {__version__}, Python ")


def test_the_installed_wheel_runs_a_cluster(environment: Path, tmp_path: Path) -> None:
    program = """
from ottla import NewTopic
from ottla.sync import Admin
from ottla.testing import LocalCluster

with LocalCluster() as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
    admin.create_topics([NewTopic("orders", 1)])
    print(admin.list_topics())
"""
    assert run([str(environment / "bin" / "python"), "-c", program]) == "['orders']\n"
