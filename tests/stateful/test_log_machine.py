"""The log against a list of lines: append, fail, crash, tear, reopen, read, find, sync, in any order."""

from __future__ import annotations

import asyncio
import errno
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.builders import LogBuilder, session_id_of
from tests.conftest import check_directory
from tests.fakes import FaultyFileSystem
from zhin_host import events as ev
from zhin_host.errors import StorageUnavailable
from zhin_host.ports import SessionLog
from zhin_host.storage.files import FileHttpSessionPersistence

SESSION = session_id_of(1)
TEXTS = st.lists(st.text(max_size=40) | st.integers(1, 40_000).map("x".__mul__), min_size=1, max_size=4)


class LogMachine(RuleBasedStateMachine):
    """`told` is the model: the bytes that any caller was told are in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp()) / "sessions"
        self.fs = FaultyFileSystem()
        self.persistence = FileHttpSessionPersistence(self.directory, fs=self.fs)
        self.builder = LogBuilder(SESSION)
        self.told = b""
        self.log: SessionLog

    @property
    def path(self) -> Path:
        return self.directory / f"{SESSION}.ndjson"

    @initialize()
    def make(self) -> None:
        self.persistence.start()
        self.log = asyncio.run(self.persistence.create_log(SESSION))
        self.builder.start()
        self._append(self.builder.batches[-1])

    def _append(self, batch: bytes) -> None:
        self.log.append(batch, expected_bytes=len(self.told))
        self.told += batch

    def _begin_again(self) -> None:
        """A new process on the same directory."""
        self.fs.bury()
        self.persistence._crew.stop()
        self.fs = FaultyFileSystem()
        self.persistence = FileHttpSessionPersistence(self.directory, fs=self.fs)
        self.persistence.start()
        self.log = self.persistence.open_log(SESSION)
        self.builder = LogBuilder.of(SESSION, self.told)

    @rule(texts=TEXTS)
    def append(self, texts: list[str]) -> None:
        self.builder.say(*texts)
        self._append(self.builder.batches[-1])

    @rule(texts=TEXTS, size_bytes=st.integers(1, 500), at=st.integers(0, 5))
    def append_on_a_full_disk(self, texts: list[str], size_bytes: int, at: int) -> None:
        batch = LogBuilder.of(SESSION, self.told).say(*texts).batches[-1]
        self.fs.write_bytes_max = max(size_bytes, len(batch) // 20)
        self.fs.fail_next(errno.ENOSPC, "write", count=None)
        self.fs.fail_at = at
        try:
            self._append(batch)
        except StorageUnavailable:
            assert self.path.read_bytes() == self.told
        else:
            self.builder = LogBuilder.of(SESSION, self.told)
        self.fs.heal()

    @rule(texts=TEXTS)
    def append_where_nothing_can_be_undone(self, texts: list[str]) -> None:
        batch = LogBuilder.of(SESSION, self.told).say(*texts).batches[-1]
        self.fs.write_bytes_max = len(batch) // 2 + 1
        self.fs.fail_next(errno.EIO, "write", "truncate", count=None)
        self.fs.fail_at = 1
        with pytest.raises(StorageUnavailable):
            self._append(batch)
        self.fs.heal()

    @rule(texts=TEXTS, share=st.floats(0, 1))
    def crash_in_a_write(self, texts: list[str], share: float) -> None:
        """Killed between the bytes of a batch: what is whole of it stays, with its newline."""
        batch = LogBuilder.of(SESSION, self.told).say(*texts).batches[-1]
        written = batch[: round(share * len(batch))]
        self._cut_what_a_failed_append_left()
        with self.path.open("ab") as file:
            file.write(written)
        for line in batch.splitlines(keepends=True):
            if len(written) < len(line) - 1:
                break
            self.told += line
            written = written[len(line) :]
        self._begin_again()

    @rule(junk=st.binary(max_size=100).filter(lambda raw: b"\n" not in raw) | st.just(b"\0" * 9000))
    def crash_with_junk_behind(self, junk: bytes) -> None:
        self._cut_what_a_failed_append_left()
        with self.path.open("ab") as file:
            file.write(junk)
        self._begin_again()

    def _cut_what_a_failed_append_left(self) -> None:
        """The machine writes to the file itself; what the dirty log left there would stand before it."""
        with self.path.open("r+b") as file:
            file.truncate(len(self.told))

    @rule()
    def close_and_open(self) -> None:
        if self.log.size_bytes != self.path.stat().st_size:
            self._cut_what_a_failed_append_left()
        self.log.close()
        self.log = self.persistence.open_log(SESSION)

    @rule()
    def sync(self) -> None:
        asyncio.run(self.log.sync())

    @rule(count=st.integers(1, 3))
    def sync_on_a_bad_disk(self, count: int) -> None:
        self.fs.fail_next(errno.EIO, "datasync", count=count)
        for _ in range(count + 1):
            try:
                asyncio.run(self.log.sync())
            except StorageUnavailable:
                continue
            break
        self.fs.heal()
        asyncio.run(self.log.sync())

    @rule(data=st.data())
    def read(self, data: Any) -> None:
        offset = data.draw(st.integers(0, len(self.told) + 5))
        size_bytes = data.draw(st.integers(0, len(self.told) + 5))
        assert self.log.read(offset, size_bytes) == self.told[offset : offset + size_bytes]

    @rule(data=st.data())
    def find(self, data: Any) -> None:
        lines = self.told.splitlines(keepends=True)
        index = data.draw(st.integers(0, len(lines) + 3))
        assert self.log.offset_of(index) == sum(map(len, lines[:index]))

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def the_log_is_what_was_told(self) -> None:
        assert self.log.size_bytes == len(self.told)
        assert self.path.read_bytes().startswith(self.told)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.builder = LogBuilder.of(SESSION, self.told)
            self.builder.put(
                (ev.TURN_CANCELLING, {"turnId": self.builder.turn_id, "reason": "enough"}),
                (ev.TURN_CANCELLED, {"turnId": self.builder.turn_id, "reason": "enough"}),
            )
            self._append(self.builder.batches[-1])
            self.persistence.stop()
            check_directory(self.directory, is_refereed=False)
        shutil.rmtree(self.directory.parent)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
