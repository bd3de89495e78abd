"""The floors of dependencies: no version that `pyproject.toml` allows has a known hole.

pip-audit asks a service on the network, which a build without one cannot reach. So this table says which advisory
fixed a version, and when the table was last compared with the public databases of advisories.
"""

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())

# Compared on 2026-11-29. A package maps to (first version without the hole, advisory, date of the advisory).
FIXED_IN = {
    "cryptography": ("50.0.0", "CVE-2026-69247: an oracle in the decryption of PKCS#7", "2026-08"),
    "h11": ("0.16.0", "CVE-2025-43859: chunked bodies that end without CR LF", "2025-04"),
    "jinja2": ("3.1.6", "CVE-2025-27516: a sandbox that `attr` leaves", "2025-03"),
    "joserfc": ("1.6.3", "CVE-2026-27932: iterations of PBES2 without a bound", "2026-02"),
    "protobuf": ("6.33.5", "CVE-2026-0994: nested `Any` in JSON without a bound; CVE-2025-4565", "2026-01"),
    "pyarrow": ("23.0.1", "CVE-2026-25087: use after free in the reader of IPC files", "2026-02"),
    "pyyaml": ("5.4", "CVE-2020-14343: a full loader that runs code", "2021-02"),
    "setuptools": ("83.0.0", "PYSEC-2026-3447; CVE-2025-47273: paths of downloads", "2026-07"),
    # Of PyPA's database, the state of 2024-10 was readable on 2026-11-30: these two holes, and no entry for pyiceberg.
    "sqlalchemy": ("1.3.0", "CVE-2019-7164, CVE-2019-7548: SQL in `order_by` and `group_by`", "2019-02"),
    "starlette": ("1.1.0", "CVE-2026-48818: UNC paths; CVE-2026-48710: hosts without a check", "2026-05"),
}
# No advisory is known of the versions that `pyproject.toml` allows. A new dependency is looked up, then listed here.
WITHOUT_ADVISORIES = {
    "asyncio-dgram",
    "avro",
    "cramjam",
    "crc32c",
    "google-re2",
    "gssapi",
    "lazy-loader",
    "lz4",
    "obstore",
    "opentelemetry-api",
    "pandas",
    "pyiceberg",
    "pysyncobj",
    "pyspark",
    "rich",
    "shtab",
    "uvicorn",
    "uvloop",
    "zstandard",
}
DEVELOPMENT = {"demo", "test", "bench", "docs", "lint"}


def requirements(*, development: bool) -> list[Requirement]:
    """Return the requirements of users, or also those of developers."""
    project = PROJECT["project"]
    texts = [*project["dependencies"], *(PROJECT["build-system"]["requires"] if development else ())]
    for extra, names in project["optional-dependencies"].items():
        if development or extra not in DEVELOPMENT:
            texts.extend(names)
    return [Requirement(text) for text in texts]


def floor(requirement: Requirement) -> Version:
    return max(Version(each.version) for each in requirement.specifier if each.operator in (">=", "=="))


def known(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


@pytest.mark.parametrize("requirement", requirements(development=True), ids=str)
def test_no_allowed_version_has_a_known_hole(requirement: Requirement) -> None:
    if known(requirement) in FIXED_IN:
        fixed, advisory, _ = FIXED_IN[known(requirement)]
        assert floor(requirement) >= Version(fixed), f"{requirement} allows {advisory}"


def test_each_dependency_of_users_was_looked_up() -> None:
    looked_up = FIXED_IN.keys() | WITHOUT_ADVISORIES
    assert {known(requirement) for requirement in requirements(development=False)} <= looked_up


@pytest.mark.parametrize("package", FIXED_IN)
def test_the_installed_version_has_no_known_hole(package: str) -> None:
    assert Version(version(package)) >= Version(FIXED_IN[package][0])
