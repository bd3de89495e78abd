"""Secrets that a test plants wherever one can be set, and the search for them in forbidden places."""

from __future__ import annotations

import base64
import gc
import secrets
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, ModuleType
from urllib.parse import quote


class Planted:
    """Random texts by name. The search also finds a text in base64, in hexadecimal digits, and as a part of a URL."""

    def __init__(self) -> None:
        self._needles: dict[str, set[bytes]] = {}

    def new(self, name: str) -> str:
        """Return a new secret to plant. Quoting and escaping do not change its characters."""
        return self.add(name, f"Plant3d-{secrets.token_urlsafe(18)}")

    def add(self, name: str, secret: str) -> str:
        """Add a secret that was made elsewhere."""
        plain = secret.encode()
        # In base64 what comes before shifts the text by a third of a character; the ends depend on the neighbours.
        shifted = {base64.b64encode(b"\0" * shift + plain)[4 : 4 * (len(plain) // 3)] for shift in range(3)}
        forms = {plain, plain.hex().encode(), quote(secret, safe="").encode(), *shifted}
        self._needles.setdefault(name, set()).update(forms)
        return secret

    def found_in(self, content: bytes | str) -> list[str]:
        """Return the names of the secrets in the content."""
        content = content.encode() if isinstance(content, str) else content
        return [name for name, needles in self._needles.items() if any(each in content for each in needles)]

    def found_in_files(self, folders: Iterable[Path]) -> dict[str, list[str]]:
        """Return the secrets' names by file, for all files in these folders."""
        files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
        assert files, "there is nothing to search"
        return {str(file): found for file in files if (found := self.found_in(file.read_bytes()))}

    def found_in_reprs(self, root: object) -> dict[str, list[str]]:
        """Return the secrets' names by class, for all objects of this project that are reachable from `root`."""
        shown: dict[str, list[str]] = {}
        seen: set[int] = set()
        pending: list[object] = [root]
        while pending:
            looked_at = pending.pop()
            if id(looked_at) in seen or isinstance(looked_at, ModuleType | type | FunctionType):
                continue
            seen.add(id(looked_at))
            if type(looked_at).__module__.startswith("ottla.") and (found := self.found_in(repr(looked_at))):
                shown[type(looked_at).__qualname__] = found
            pending += gc.get_referents(looked_at)
        return shown
