"""A start at which any call to the file system fails: it succeeds, or is refused in one sentence and holds nothing."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from tests.builders import session_id_of
from tests.fakes import FaultyFileSystem
from zhin_host import AgentSessionHost, Turn, create_agent_session_host
from zhin_host.errors import StartupError, StorageFull
from zhin_host.ports import Principal
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.store import Page


async def _agent(turn: Turn) -> None:
    await turn.say("here")


def _host(directory: Path, fs: FaultyFileSystem) -> AgentSessionHost:
    return create_agent_session_host(_agent, persistence=FileHttpSessionPersistence(directory, fs=fs))


async def test_a_start_at_which_a_call_fails_is_refused_in_a_sentence_and_leaves_the_directory_free(
    tmp_path: Path,
) -> None:
    counting = FaultyFileSystem()
    async with _host(tmp_path / "good", counting):
        total = len(counting.calls)
    refusals: list[str] = []
    for number in range(total):
        directory = tmp_path / str(number)
        host = _host(directory, FaultyFileSystem(fail_at=number, fail_error=errno.EMFILE))
        try:
            await host.start()
        except StartupError as error:
            refusals.append(str(error))
        else:
            await host.stop()
        async with _host(directory, FaultyFileSystem()) as again:  # nobody holds it
            assert again.sessions_found == 0
    assert len(refusals) > total / 2
    assert [sentence for sentence in refusals if not sentence.endswith(".")] == []


async def test_a_log_that_could_not_be_removed_when_its_making_failed_is_swept_at_the_next_start(
    data_dir: Path,
) -> None:
    fs = FaultyFileSystem()
    persistence = FileHttpSessionPersistence(data_dir, fs=fs)
    persistence.start()
    fs.fail_next(errno.ENOSPC, "fsync", "unlink", count=2)  # the sync of its name, and the removal of its log
    with pytest.raises(StorageFull):
        await persistence.create_log(session_id_of(1))
    persistence.stop()
    async with _host(data_dir, FaultyFileSystem()) as host, asyncio.timeout(10):
        while host._sessions.unsorted:  # noqa: ASYNC110 - recovery rings no bell
            await asyncio.sleep(0)
        assert await host.store.page(Principal(), None, 10, None) == Page([], None)
    assert [name for name in fs.names(str(data_dir)) if name.startswith("ses_")] == []
