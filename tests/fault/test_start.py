"""A start at which any call to the file system fails: it succeeds, or is refused in one sentence and holds nothing."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.fakes import FaultyFileSystem
from zhin_host import AgentSessionHost, Turn, create_agent_session_host
from zhin_host.errors import StartupError
from zhin_host.storage.files import FileHttpSessionPersistence


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
