"""The certificates of a client: loaded when the client is created, and again for new connections once their files have
changed."""

from __future__ import annotations

import logging
import os
import ssl
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from ...network.tls.memory_file import in_memory

logger = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The content of an SSL context, by the names of the options. If all are None, the system's certificates are
    trusted."""

    cafile: str | None = None
    cadata: str | None = None
    certfile: str | None = None
    certdata: str | None = None
    keyfile: str | None = None
    keydata: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    crlfile: str | None = None
    ciphers: str | None = None
    checks_names: bool = True

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the certificate and key files."""
        return tuple(
            path for path in (self.cafile, self.certfile, self.keyfile, self.crlfile) if path is not None
        )

    def trusted(self) -> str:
        """Return a description of the certificates that the client trusts, for messages."""
        named = [f"ssl_cafile {self.cafile}"] if self.cafile is not None else []
        named += ["ssl_cadata"] if self.cadata is not None else []
        return " and ".join(named) or "the system's CAs, as ssl_cafile is not given"


class ClientTls:
    """The TLS of a client. Existing connections keep the context that they were made with."""

    def __init__(self, files: TlsFiles, context: ssl.SSLContext | None = None) -> None:
        """`context` is a context of the program, which replaces the files. Raises ValueError that names the option and
        file that cannot be used."""
        self.files = files
        self._is_given = context is not None
        self._stamp = self._look()
        self._context = make_context(files) if context is None else context

    @property
    def trusted(self) -> str:
        """A description of the certificates that the client trusts, for messages."""
        return "the ssl_context" if self._is_given else self.files.trusted()

    def context(self) -> ssl.SSLContext:
        """Return the SSL context for the next connection. Changed files that cannot be used are logged, and the old
        certificates remain."""
        if self._is_given or (stamp := self._look()) == self._stamp:
            return self._context
        self._stamp = stamp
        try:
            self._context = make_context(self.files)
            logger.info(
                "certificates were loaded again, as they have changed: %s", ", ".join(self.files.paths)
            )
        except ValueError as error:
            logger.warning("certificates have changed and cannot be used, so the old ones are: %s", error)
        return self._context

    def _look(self) -> _Stamp:
        found = []
        for path in self.files.paths:
            try:
                status = os.stat(path)
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(found)


def make_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a context made from these files. Raises ValueError that names the option and file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.check_hostname = files.checks_names
    # As in Java, each trusted certificate is an anchor, even if it is not a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if files.ciphers is not None:
        try:
            context.set_ciphers(files.ciphers)
        except ssl.SSLError:
            raise ValueError(f"ssl_ciphers: OpenSSL knows none of {files.ciphers!r}") from None
    if files.cafile is None and files.cadata is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if files.cadata is not None:
        try:
            context.load_verify_locations(cadata=files.cadata)
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"ssl_cadata holds no certificates in PEM: {_reason(error)}") from None
    for option, path in (("ssl_cafile", files.cafile), ("ssl_crlfile", files.crlfile)):
        if path is not None:
            try:
                context.load_verify_locations(cafile=path)
            except OSError as error:
                raise ValueError(f"{option}: {path} cannot be used: {_reason(error)}") from None
    if files.crlfile is not None:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    _load_own(context, files)
    return context


def _load_own(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.certfile is None and files.certdata is None:
        return
    try:
        with (
            _readable(files.certfile, files.certdata) as certificate,
            _readable(files.keyfile, files.keydata) as key,
        ):
            assert certificate is not None
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(certificate, key, files.password or "")
    except OSError as error:
        given = {
            "ssl_certfile": files.certfile,
            "ssl_certdata": files.certdata and "(text)",
            "ssl_keyfile": files.keyfile,
            "ssl_keydata": files.keydata and "(text)",
        }
        given = {name: shown for name, shown in given.items() if shown is not None}
        option, paths = " and ".join(given), " and ".join(map(str, given.values()))
        hint = "" if files.password is not None else "; ssl_password is not given"
        needs_password = isinstance(error, ssl.SSLError)
        raise ValueError(
            f"{option}: {paths} cannot be used: {_reason(error)}{hint if needs_password else ''}"
        ) from None


def _readable(path: str | None, data: str | None) -> AbstractContextManager[str | None]:
    """Return a path that OpenSSL can read: that of the file, or of `data` in memory, so that no key is written to a
    disk."""
    return nullcontext(path) if data is None else in_memory(data.encode())


def _reason(error: Exception) -> str:
    """Return the reason in the words of OpenSSL or of the system, without source locations."""
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error.args[-1] if error.args else error)).replace("_", " ").lower()
        return "this is no PEM" if reason in ("no start line", "not enough data") else reason
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
