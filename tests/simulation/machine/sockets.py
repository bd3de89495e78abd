"""The replacements of the class and the functions of `socket` on the machine."""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Self

from .datagrams import DatagramSocket
from .descriptors import Descriptor, Watcher
from .flow import RECEIVE_BUFFER_BYTES, SEND_BUFFER_BYTES
from .machine import Machine
from .network import EVERYWHERE, LOOPBACK, Endpoint, failure
from .process import Process
from .streams import StreamEnd, StreamSocket
from .threads import ProcessKilled

_PAIR_BYTES_MAX = 208 << 10
_MSG_PEEK, _MSG_DONTWAIT = int(socket.MSG_PEEK), int(socket.MSG_DONTWAIT)


class PairSocket(Descriptor):
    """One end of a `socketpair`; data written at one end is at the other at once."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self.closed = False
        self._peer: PairSocket = self
        self._received: deque[bytes] = deque()
        self._unread = 0
        self._ended = False
        self._shut = False

    def join(self, peer: PairSocket) -> None:
        self._peer, peer._peer = peer, self

    def readable(self) -> bool:
        return bool(self._received) or self._ended

    def writable(self) -> bool:
        return self._shut or self._peer.closed or self._peer._unread < _PAIR_BYTES_MAX

    def take_error(self) -> int:
        return 0

    def send_bytes(self, data: bytes | memoryview) -> int:
        """Send bytes. Raises OSError, in particular BlockingIOError when the other end has no room."""
        peer = self._peer
        if self._shut or peer.closed:
            raise failure(errno.EPIPE)
        size = min(len(data), _PAIR_BYTES_MAX - peer._unread)
        if size <= 0 < len(data):
            raise failure(errno.EAGAIN)
        peer._received.append(bytes(data[:size]))
        peer._unread += size
        peer.changed()
        return size

    def receive(self, size: int, peek: bool = False) -> bytes | None:
        """Return up to `size` available bytes; None if there are none yet."""
        if not self._received:
            return b"" if self._ended else None
        data = b"".join(self._received)
        self._received.clear()
        rest = data if peek else data[size:]
        if rest:
            self._received.append(rest)
        was_full = self._unread >= _PAIR_BYTES_MAX
        self._unread = len(rest)
        if was_full:
            self._peer.changed()
        return data[:size]

    def shut(self) -> None:
        self._shut = True
        self._peer._ended = True
        self._peer.changed()

    def abandon(self, silently: bool) -> None:
        if silently:
            self.machine.network.vanish(self.process.host)
        self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            super().close()
            self.shut()


class VirtualSocket:
    """The replacement of `socket.socket`. A socket belongs to the process that runs at its creation."""

    machine: Machine

    def __init__(
        self, family: int = -1, type: int = -1, proto: int = -1, fileno: Any = None, *, _kernel: Any = None
    ) -> None:
        if fileno is not None:
            raise NotImplementedError("a socket of a number")
        self.family = socket.AddressFamily(socket.AF_INET if family == -1 else family)
        self.type = socket.SocketKind(socket.SOCK_STREAM if type == -1 else type)
        self.proto = max(proto, 0)
        self._timeout: float | None = None
        self._options: dict[tuple[int, int], Any] = {}
        if _kernel is None:
            if self.family != socket.AF_INET:
                raise failure(errno.EAFNOSUPPORT)
            process = _running(self.machine)
            made = StreamSocket if self.type == socket.SOCK_STREAM else DatagramSocket
            _kernel = made(self.machine.network, process)
        self._kernel: StreamSocket | DatagramSocket | PairSocket = _kernel

    # ------------------------------------------------------------ itself

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self._kernel.closed else ""
        return f"<virtual socket {self._kernel.number}{state} of {self._kernel.process.name}>"

    def fileno(self) -> int:
        return -1 if self._kernel.closed else self._kernel.number

    def close(self) -> None:
        self._kernel.close()

    def detach(self) -> int:
        """Refuse, since no code on the machine takes over descriptor numbers."""
        raise NotImplementedError("detach")

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def getblocking(self) -> bool:
        return self._timeout != 0.0

    def settimeout(self, value: float | None) -> None:
        self._timeout = value

    def gettimeout(self) -> float | None:
        return self._timeout

    def get_inheritable(self) -> bool:
        return False

    def set_inheritable(self, inheritable: bool) -> None:
        """Do nothing, since descriptors are never inherited here."""

    def setsockopt(self, level: int, option: int, value: Any, optlen: int | None = None) -> None:
        self._open()
        self._options[level, option] = value

    def getsockopt(self, level: int, option: int, buflen: int = 0) -> Any:
        self._open()
        if level == socket.SOL_SOCKET:
            if option == socket.SO_ERROR:
                return self._kernel.take_error()
            if option == socket.SO_TYPE:
                return int(self.type)
            if option == socket.SO_RCVBUF:
                return RECEIVE_BUFFER_BYTES
            if option == socket.SO_SNDBUF:
                return SEND_BUFFER_BYTES
            if option == socket.SO_ACCEPTCONN:
                return int(isinstance(self._kernel, StreamSocket) and self._kernel.listening)
        return self._options.get((level, option), 0)

    def getsockname(self) -> Any:
        kernel = self._open()
        if isinstance(kernel, PairSocket):
            return ""
        return kernel.local or (EVERYWHERE, 0)

    def getpeername(self) -> Any:
        kernel = self._open()
        if isinstance(kernel, PairSocket):
            return ""
        if isinstance(kernel, DatagramSocket):
            peer = kernel.peer
        else:
            peer = kernel.end.remote if kernel.end is not None and not kernel.connecting else None
        if peer is None:
            raise failure(errno.ENOTCONN)
        return peer

    # ------------------------------------------------------------ connections

    def bind(self, address: tuple[str, int]) -> None:
        self._bindable().bind(self._resolved(address))

    def listen(self, backlog: int = 128) -> None:
        self._stream().listen(backlog)

    def accept(self) -> tuple[VirtualSocket, Endpoint]:
        kernel = self._stream()
        end = self._when(kernel.accept, kernel.readable)
        accepted = StreamSocket(self.machine.network, _running(self.machine), end)
        return type(self)(self.family, self.type, self.proto, _kernel=accepted), end.remote

    def connect(self, address: tuple[str, int]) -> None:
        kernel = self._bindable()
        kernel.connect(self._resolved(address))
        if isinstance(kernel, DatagramSocket):
            return
        if self._timeout == 0.0:
            raise failure(errno.EINPROGRESS)
        self._wait(lambda: not kernel.connecting, self._deadline())
        if error := kernel.take_error():
            raise failure(error)

    def connect_ex(self, address: tuple[str, int]) -> int:
        try:
            self.connect(address)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def shutdown(self, how: int) -> None:
        kernel = self._open()
        if isinstance(kernel, PairSocket):
            kernel.shut()
            return
        end = kernel.end if isinstance(kernel, StreamSocket) else None
        if end is None:
            raise failure(errno.ENOTCONN)
        if how in (socket.SHUT_WR, socket.SHUT_RDWR):
            end.shut()

    # ------------------------------------------------------------ sending

    def send(self, data: Any, flags: int = 0) -> int:
        kernel = self._open()
        if isinstance(kernel, DatagramSocket):
            return kernel.send(bytes(data), None)
        view = _bytes(data)
        sent: int = self._when(lambda: _unless_full(kernel, view), kernel.writable, flags)
        return sent

    def sendall(self, data: Any, flags: int = 0) -> None:
        view = memoryview(_bytes(data))
        while view:
            view = view[self.send(view, flags) :]

    def sendmsg(
        self, buffers: Iterable[Any], ancdata: Iterable[Any] = (), flags: int = 0, address: Any = None
    ) -> int:
        data = b"".join(buffers)
        return self.send(data, flags) if address is None else self.sendto(data, flags, address)

    def sendto(self, data: Any, *flags_and_address: Any) -> int:
        kernel = self._open()
        if not isinstance(kernel, DatagramSocket):
            return self.send(data)
        return kernel.send(bytes(data), self._resolved(flags_and_address[-1]))

    # ------------------------------------------------------------ receiving

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        return self.recvfrom(bufsize, flags)[0]

    def recvfrom(self, bufsize: int, flags: int = 0) -> tuple[bytes, Any]:
        kernel = self._open()
        peek = bool(flags & _MSG_PEEK)
        if isinstance(kernel, DatagramSocket):
            data, sender = self._when(lambda: kernel.receive(peek), kernel.readable, flags)
            return data[:bufsize], sender
        source: StreamEnd | PairSocket
        if isinstance(kernel, PairSocket):
            source = kernel
        elif kernel.end is not None and not kernel.connecting:
            source = kernel.end
        else:
            raise failure(kernel.take_error() or errno.ENOTCONN)
        return self._when(lambda: source.receive(bufsize, peek), kernel.readable, flags), None

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        return self.recvfrom_into(buffer, nbytes, flags)[0]

    def recvfrom_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
        view = memoryview(buffer).cast("B")
        data, sender = self.recvfrom(nbytes or len(view), flags)
        view[: len(data)] = data
        return len(data), sender

    def recvmsg(self, bufsize: int, ancbufsize: int = 0, flags: int = 0) -> tuple[bytes, list[Any], int, Any]:
        data, sender = self.recvfrom(bufsize, flags)
        return data, [], 0, sender

    # ------------------------------------------------------------ the way there

    def _open(self) -> StreamSocket | DatagramSocket | PairSocket:
        if self._kernel.closed:
            raise failure(errno.EBADF)
        return self._kernel

    def _bindable(self) -> StreamSocket | DatagramSocket:
        kernel = self._open()
        if isinstance(kernel, PairSocket):
            raise failure(errno.EINVAL)
        return kernel

    def _stream(self) -> StreamSocket:
        kernel = self._open()
        if not isinstance(kernel, StreamSocket):
            raise failure(errno.EOPNOTSUPP)
        return kernel

    def _resolved(self, address: tuple[Any, ...]) -> Endpoint:
        name, port = address[:2]
        found = self.machine.network.resolve(name or EVERYWHERE)
        if found is None:
            if name.replace(".", "").isdigit():
                return name, port
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found, port

    def _when(self, attempt: Callable[[], Any], ready: Callable[[], bool], flags: int = 0) -> Any:
        """Return the result of `attempt` once it is not None; a non-blocking socket does not wait."""
        deadline = self._deadline()
        while (result := attempt()) is None:
            if self._timeout == 0.0 or flags & _MSG_DONTWAIT:
                raise failure(errno.EAGAIN)
            self._wait(ready, deadline)
        return result

    def _deadline(self) -> float | None:
        return None if self._timeout is None else self.machine.now + self._timeout

    def _wait(self, ready: Callable[[], bool], deadline: float | None) -> None:
        """Let other threads run until the socket is ready. Raises TimeoutError."""
        machine = self.machine
        thread = machine.running
        if thread is None:
            raise ProcessKilled
        kernel = self._open()
        watcher = Watcher()
        kernel.watch(watcher)
        try:
            while not ready():
                left = None if deadline is None else deadline - machine.now
                if left is not None and left <= 0:
                    raise TimeoutError("timed out")
                watcher.wait(thread, left)
                self._open()
        finally:
            kernel.unwatch(watcher)


def _unless_full(kernel: StreamSocket | PairSocket, data: bytes | memoryview) -> int | None:
    try:
        return kernel.send_bytes(data)
    except BlockingIOError:
        return None


def _bytes(data: Any) -> bytes | memoryview:
    return data if isinstance(data, bytes) else memoryview(data).cast("B")


def _running(machine: Machine) -> Process:
    if machine.running is None:
        raise ProcessKilled
    return machine.running.process


def replacements(machine: Machine) -> list[tuple[ModuleType, str, Any]]:
    """Return the replaced names of `socket`, with their replacements."""
    of_machine = machine

    class MachineSocket(VirtualSocket):
        machine = of_machine

    def socketpair(family: int = socket.AF_UNIX, type: int = socket.SOCK_STREAM, proto: int = 0) -> Any:
        process = _running(machine)
        first, other = PairSocket(process), PairSocket(process)
        first.join(other)
        return tuple(MachineSocket(family, type, proto, _kernel=end) for end in (first, other))

    def getaddrinfo(
        host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        _running(machine)
        name = host.decode() if isinstance(host, bytes) else host
        if not name:
            name = EVERYWHERE if flags & socket.AI_PASSIVE else LOOPBACK
        address = machine.network.resolve(name)
        if address is None or family not in (0, socket.AF_INET):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        kinds = [(socket.SOCK_STREAM, socket.IPPROTO_TCP), (socket.SOCK_DGRAM, socket.IPPROTO_UDP)]
        found = (address, int(port or 0))
        return [
            (socket.AF_INET, kind, int(protocol), "", found)
            for kind, protocol in kinds
            if type in (0, kind) and proto in (0, protocol)
        ]

    def gethostname() -> str:
        return _running(machine).host.name

    def create_connection(address: tuple[str, int], timeout: Any = None, source_address: Any = None) -> Any:
        sock = MachineSocket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout if isinstance(timeout, int | float) else None)
            if source_address:
                sock.bind(source_address)
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
        return sock

    def create_server(address: tuple[str, int], *, family: int = socket.AF_INET, backlog: int = 128) -> Any:
        sock = MachineSocket(family, socket.SOCK_STREAM)
        try:
            sock.bind(address)
            sock.listen(backlog)
        except BaseException:
            sock.close()
            raise
        return sock

    return [
        (socket, "socket", MachineSocket),
        (socket, "socketpair", socketpair),
        (socket, "getaddrinfo", getaddrinfo),
        (socket, "gethostname", gethostname),
        (socket, "getfqdn", gethostname),
        (socket, "create_connection", create_connection),
        (socket, "create_server", create_server),
        (socket, "has_ipv6", False),
    ]
