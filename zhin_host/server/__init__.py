"""Server: uvicorn that drains before it waits for connections, and that leaves descriptors for the logs.

uvicorn waits for open responses before it tells the app to stop, so one open stream would hold every stop for
long. Here the host is drained first, with the port still answering; then connections are closed.
"""

from zhin_host.server.connection import ABORT, raise_descriptor_limit
from zhin_host.server.listening import bind, is_loopback
from zhin_host.server.process import Address, Server, serve

__all__ = ["ABORT", "Address", "Server", "bind", "is_loopback", "raise_descriptor_limit", "serve"]
