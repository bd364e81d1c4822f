"""Listening: the sockets of an address, taken before anything starts."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from typing import Any, Final

from zhin_host.errors import PortInUse, StartupError

BACKLOG: Final = 2048


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of `host`, all on one port.

    Listening begins here: only that says for certain that the port is free. What connects is answered
    once the host has started.

    Raises:
        StartupError: There is no such address, or the port is not ours to take; PortInUse when it is taken.
    """
    found = _resolved(host, port)
    sockets: list[socket.socket] = []
    try:
        for family, _, protocol, _, address in dict.fromkeys(found):
            taken = sockets[0].getsockname()[1] if sockets else port
            sockets.append(_listen(family, protocol, (address[0], taken, *address[2:])))
    except OSError as error:
        for listener in sockets:
            listener.close()
        raise _why_not(error, host, port) from None
    return sockets


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach each address that `host` stands for.

    Raises:
        StartupError: It stands for none.
    """
    return all(
        ipaddress.ip_address(address[0].partition("%")[0]).is_loopback for *_, address in _resolved(host, 0)
    )


def _resolved(host: str, port: int) -> list[tuple[Any, ...]]:
    """What getaddrinfo says of a name or address to listen on."""
    if not host:  # else it would stand for every address, where who calls was not thought of
        raise StartupError("There is no address to listen on; name it with --host.")
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    except OSError as error:
        raise StartupError(
            f"There is no address {host!r} here: {error.strerror}; choose another --host."
        ) from None


def _listen(family: int, protocol: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(
        family, socket.SOCK_STREAM, protocol
    )  # named, asyncio sets TCP_NODELAY; else it waits
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart need not wait a minute
        if family == socket.AF_INET6:
            listener.setsockopt(
                socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1
            )  # the other has a socket of its own
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _why_not(error: OSError, host: str, port: int) -> StartupError:
    match error.errno:
        case errno.EADDRINUSE:
            return PortInUse(
                f"Port {port} of {host} is in use; stop what listens there, or choose another --port."
            )
        case errno.EACCES:
            return StartupError(
                f"Port {port} of {host} may not be taken by this user; choose a --port above 1023."
            )
        case _:
            return StartupError(
                f"{host} port {port} cannot be listened on: {error.strerror}; choose another --host."
            )
