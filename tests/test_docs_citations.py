"""Citations in code, tests and pages name existing rules, scenarios, KIPs, tests, files, links and anchors.

CONTRIBUTING.md gives the form of each kind of citation.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
OTHER_PAGES = [
    ROOT / "benchmarks/README.md",
    ROOT / "examples/outbox/README.md",
    ROOT / "examples/replicated_database/README.md",
]
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md")), *OTHER_PAGES]
PACKAGES = (
    "benchmarks",
    "cli",
    "client",
    "console",
    "dataplane",
    "deploy",
    "docs",
    "metadata_quorum",
    "ottla",
)
PACKAGES += ("examples", "lake", "network", "protocol", "spark_integration", "tests", ".ci", ".typing")
SOURCES = (".py", ".pyi", ".c", ".h")

RULES = re.compile(r"\brules?\s+((?:T?\d+)(?:(?:, | and | to |-)T?\d+)*)\b", re.IGNORECASE)
SCENARIOS = re.compile(r"\bscenarios?\s+(\d+(?:(?:, | and | to |-)\d+)*)\b", re.IGNORECASE)
HOLE = re.compile(r"\bhole (r?\d+)\b", re.IGNORECASE)
PROPOSAL = re.compile(r"(?<![\w/])kip[\s_-]?\d+\b(?!\.tla)", re.IGNORECASE)
ISSUE = re.compile(r"(?<![\w/])kafka[\s_-]?\d{3,}\b", re.IGNORECASE)
TEST = re.compile(r"`(test_[a-z0-9_]+\*?)`")
PATH = re.compile(r"`([\w.*{},/-]+\.(?:py|pyi|c|h|md|toml|svg|service|conf))`")
FOLDER = re.compile(rf"`((?:{'|'.join(map(re.escape, PACKAGES))})/[\w.*{{}},/-]*)`")
PATH_IN_RECIPE = re.compile(r"`([\w*.]+/[\w*./-]*)`")
PAGE_IN_CODE = re.compile(r"\b((?:docs/)?[A-Z][A-Z_-]+\.md)\b")
LINK = re.compile(r"\]\(((?!https?:)[^)\s]*)\)")


@cache
def files() -> frozenset[str]:
    """Return every file of the project by its path from the root."""
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.iterdir() if path.is_file()}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.add(path.relative_to(ROOT).as_posix())
    return frozenset(found)


@cache
def text_of(name: str) -> str:
    """Return the text of a file, with each multi-line comment joined into one line."""
    return re.sub(r"\s*\n\s*(?:#\s|\*\s)?\s*", " ", (ROOT / name).read_text())


def sources() -> list[str]:
    """Return the names of all files that are written by hand: code, tests and pages."""
    here = Path(__file__).relative_to(ROOT).as_posix()
    return sorted(name for name in files() if name.endswith((*SOURCES, ".md")) and name != here)


def numbers(cited: str) -> Iterator[str]:
    """Yield the numbers in a list: "1, 3 to 5 and 7" gives 1, 3, 4, 5, 7. Rules of transactions keep their T."""
    for part in re.split(r", | and ", cited):
        ends = re.split(r" to |-", part)
        letter = "T" if ends[0].upper().startswith("T") else ""
        first, last = (int(end.upper().removeprefix("T")) for end in (ends[0], ends[-1]))
        yield from (f"{letter}{number}" for number in range(first, last + 1))


def rows(page: str, heading: str, row: str) -> set[str]:
    """Return the first parts of the rows in a section's table."""
    text = (DOCS / page).read_text()
    section = text[text.index(f"\n{heading}\n") + 1 :].split("\n## ")[0]
    return set(re.findall(row, section, re.MULTILINE))


def citations(pattern: re.Pattern[str]) -> set[tuple[str, str]]:
    """Return (number, file) of every citation that matches this pattern."""
    return {
        (number, name)
        for name in sources()
        for cited in pattern.findall(text_of(name))
        for number in numbers(cited)
    }


def test_every_rule_that_is_cited_is_on_its_page() -> None:
    known = rows("TRANSACTIONS.md", "## The rules", r"^\| (T\d+) \|")
    assert known == {f"T{number}" for number in range(1, len(known) + 1)}
    known |= rows("REPLICATION.md", "## The four rules", r"^(\d)\. \*\*")
    cited = citations(RULES)
    assert len(cited) > 40
    assert not sorted((number, name) for number, name in cited if number not in known)


def test_every_rule_is_cited_with_the_word() -> None:
    """A reader who searches for `rule T3` does not find a bare `(T3)`."""
    alone = [
        (name, cited)
        for name in sources()
        if not name.endswith(".md")
        for cited in re.findall(r"\((T\d+)\)", text_of(name))
    ]
    assert not alone


def test_every_scenario_that_is_cited_is_on_its_page() -> None:
    known = rows("TESTING.md", "## Scenarios", r"^\| (\d+) \| \*\*")
    assert known == {str(number) for number in range(1, len(known) + 1)}
    cited = citations(SCENARIOS)
    assert len(cited) > 20
    assert not sorted((number, name) for number, name in cited if number not in known)


def test_every_hole_of_the_library_that_is_cited_is_on_its_page() -> None:
    known = rows("TESTING.md", "## Faults of the Raft library, and ours beside them", r"^\| (r?\d+) \|")
    cited = {(number, name) for name in sources() for number in HOLE.findall(text_of(name))}
    assert len(cited) > 5
    assert not sorted((number, name) for number, name in cited if number not in known)


def test_proposals_and_issues_of_kafka_have_one_form() -> None:
    wrong = [
        (name, cited)
        for name in sources()
        for cited in PROPOSAL.findall(text_of(name)) + ISSUE.findall(text_of(name))
        if not re.fullmatch(r"KIP-\d+|KAFKA-\d+", cited)
    ]
    assert not wrong


@cache
def known_tests() -> frozenset[str]:
    """Return the names of all test functions and test modules."""
    found: set[str] = set()
    for name in files():
        if name.startswith("tests/") and name.endswith(".py"):
            found.add(Path(name).stem)
            found |= set(re.findall(r"def (test_\w+)", (ROOT / name).read_text()))
    return frozenset(found)


def lines(page: Path, text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a page, each with its location."""
    for number, line in enumerate(text.splitlines(), 1):
        yield f"{page.relative_to(ROOT)}:{number}", line


def without_blocks(page: Path) -> str:
    """Return the text of a page with its code blocks replaced by empty lines."""
    blocks = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    return blocks.sub(lambda block: "\n" * block[0].count("\n"), page.read_text())


def test_tests_that_pages_name_exist() -> None:
    missing = [
        f"{place}: {named}"
        for page in PAGES
        for place, line in lines(page, page.read_text())
        for named in TEST.findall(line)
        if not is_a_test(named)
    ]
    assert not missing, "\n".join(missing)


def is_a_test(named: str) -> bool:
    """Return whether a test of this name exists; `test_kip_*` matches all tests with this prefix."""
    if named.endswith("*"):
        return any(test.startswith(named[:-1]) for test in known_tests())
    return named in known_tests()


def expanded(pattern: str) -> Iterable[str]:
    """Expand braces: `a/{b,c}/d` gives `a/b/d` and `a/c/d`."""
    parts = re.split(r"\{([^}]*)\}", pattern)
    return map("".join, product(*(part.split(",") if odd % 2 else [part] for odd, part in enumerate(parts))))


@cache
def exists(pattern: str) -> bool:
    """Return whether a file or folder matches the pattern, as a path from the root or as the end of a path."""
    as_regex = re.escape(pattern.removeprefix("../../").removesuffix("/")).replace(r"\*", "[^/]*")
    whole = re.compile(rf"(?:.*/)?{as_regex}" + ("" if "." in pattern else "(?:/.*)?"))
    return any(whole.fullmatch(name) for name in files())


WRITTEN_BY_READERS = {
    "conftest.py",
    "copier.py",
    "count.py",
    "member.py",
    "orders.py",
    "shop.py",
    "payments.py",
    "admin.conf",
    "admin.password",
    "admin.properties",
    "ann.conf",
    "ann.password",
    "ann.properties",
    "metrics.token",
    "profiles.json",
}
"""Files that users of Ottla write, or that stand in the folders of their clusters."""


def test_files_that_pages_name_exist() -> None:
    missing = [
        f"{place}: {path}"
        for page in PAGES
        for place, line in lines(page, without_blocks(page))
        for pattern in {*PATH.findall(line), *FOLDER.findall(line)}
        if Path(pattern).name not in WRITTEN_BY_READERS
        for path in expanded(pattern)
        if not exists(path)
    ]
    assert not missing, "\n".join(missing)


def test_paths_in_recipes_stand_from_the_root() -> None:
    recipes = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Recipes\n")[2]
    paths = {
        path for line in recipes.splitlines() if line.startswith("|") for path in PATH_IN_RECIPE.findall(line)
    }
    assert len(paths) > 50
    missing = [path for path in sorted(paths) if not any(ROOT.glob(path))]
    assert not missing


@cache
def files_of_commit(commit: str) -> list[str] | None:
    """Return the files that a commit touches; None if the commit is not in the local history."""
    command = ["git", "show", "--format=", "--name-only", commit]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else None


def test_commits_that_recipes_cite_touch_files_that_still_are_where_they_were() -> None:
    cited = re.findall(r"`([0-9a-f]{7})`", (ROOT / "CONTRIBUTING.md").read_text())
    assert cited
    gone = [
        (commit, file) for commit in cited for file in files_of_commit(commit) or () if file not in files()
    ]
    assert not gone, "cite another commit, or none"


def test_pages_that_code_names_exist() -> None:
    missing = [
        (name, page)
        for name in sources()
        if name.endswith(SOURCES)
        for page in PAGE_IN_CODE.findall(text_of(name))
        if not (ROOT / page).exists() and not (DOCS / page).exists()
    ]
    assert not missing


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, formed as code hosts form them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", without_blocks(page), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(anchor if anchor not in found else f"{anchor}-1")
    return found


def test_links_lead_somewhere() -> None:
    astray = [
        f"{place}: {link}"
        for page in PAGES
        for place, line in lines(page, without_blocks(page))
        for link in LINK.findall(line)
        if not leads_somewhere(page, link)
    ]
    assert not astray, "\n".join(astray)


def leads_somewhere(page: Path, link: str) -> bool:
    target, _, anchor = link.partition("#")
    there = (page.parent / target).resolve() if target else page
    return there.exists() and (not anchor or there.suffix != ".md" or anchor in anchors(there))


def test_numbers_of_a_citation() -> None:
    assert list(numbers("T8, T9 and T11")) == ["T8", "T9", "T11"]
    assert list(numbers("T4 to T6")) == ["T4", "T5", "T6"]
    assert list(numbers("36 to 38")) == ["36", "37", "38"]
