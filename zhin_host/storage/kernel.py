"""KernelCrew: syncs handed to the kernel, so that no thread waits for the disk, or for the interpreter's lock."""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import os
from collections.abc import Awaitable
from typing import Any, Final

import caio

from zhin_host.storage.crew import SyncCrew
from zhin_host.storage.fs import FileSystem

_logger = logging.getLogger("zhin_host.storage")
_kernel: Any = caio.linux_aio_asyncio  # None where the system or a sandbox has no such calls
_AT_ONCE: Final = 256  # more wait their turn; the kernel sets aside memory for as many
_NUMBERS: Final = {os.strerror(number): number for number in errno.errorcode}


class KernelCrew(SyncCrew):
    """A crew whose syncs are Linux's own asynchronous ones; other jobs run in its threads, as any crew's."""

    def __init__(self, fs: FileSystem) -> None:
        super().__init__(fs)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: Any = None

    async def datasync(self, fd: int) -> None:
        if not await self._ask(fd, is_data_only=True):
            await super().datasync(fd)

    async def fsync(self, fd: int) -> None:
        if not await self._ask(fd, is_data_only=False):
            await super().fsync(fd)

    def stop(self) -> None:
        super().stop()
        self._let_go()

    async def _ask(self, fd: int, *, is_data_only: bool) -> bool:
        """Wait for the kernel; False when it does not take such a request, so that a thread must do it.

        Raises:
            OSError: The sync failed.
        """
        self.check_running()
        try:
            context = self._context_here()
            asked: Awaitable[object] = context.fdsync(fd) if is_data_only else context.fsync(fd)
            await asked
        except SystemError as error:  # the library says the number's text and not the number
            raise OSError(_NUMBERS.get(str(error), errno.EIO), str(error)) from error
        except (OSError, ValueError, OverflowError, NotImplementedError) as error:
            _logger.debug("the kernel takes no asynchronous sync here: %s", error)
            return False
        return True

    def _context_here(self) -> Any:
        """The queue of the running loop; one loop after another may use the crew."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._let_go()
            self._context = _context_class()(_AT_ONCE, loop=loop)
            self._loop = loop
        return self._context

    def _let_go(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._context.close()
        self._loop = self._context = None


@functools.cache
def _context_class() -> Any:
    class Context(_kernel.AsyncioContext):  # type: ignore[misc]  # untyped, and missing on other systems
        """The library's queue, which loses no answer when a signal comes between."""

        def _on_read_event(self) -> None:
            try:
                super()._on_read_event()
            except SystemError as error:  # interrupted: what has ended meanwhile is still there to be taken
                _logger.debug("the kernel's answers are asked for once more: %s", error)
                self.loop.call_soon(self._on_read_event)

    return Context


async def takes_syncs(directory: str) -> bool:
    """Whether the kernel syncs without a thread here; a directory is synced to see it."""
    crew = best_crew(FileSystem())
    if not isinstance(crew, KernelCrew):
        return False
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return await crew._ask(fd, is_data_only=False)  # noqa: SLF001 - of this module
    finally:
        crew.stop()
        os.close(fd)


def best_crew(fs: FileSystem) -> SyncCrew:
    """The kernel's asynchronous syncs where there are any (Linux, and no sandbox that forbids them), else threads."""
    return SyncCrew(fs) if _kernel is None else KernelCrew(fs)
