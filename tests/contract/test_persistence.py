"""What every persistence promises (ports.SessionPersistence, ports.SessionLog), kept by files and by memory alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import LogBuilder, session_id_of
from zhin_host.clock import SessionId
from zhin_host.errors import SessionNotFound, StorageUnavailable
from zhin_host.ports import MARK_RUNNING, MARK_STOPPED, SessionLog, SessionPersistence
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.memory import MemorySessionPersistence


async def kept(persistence: SessionPersistence, builder: LogBuilder) -> SessionLog:
    """A log that holds what was built, still open."""
    log = await persistence.create_log(builder.session_id)
    for batch in builder.batches:
        log.append(batch, expected_bytes=log.size_bytes)
    return log


class PersistencePromises:
    """Inherited with a fixture `persistence`, started."""

    # -- logs ------------------------------------------------------------------------------------------------

    async def test_a_new_log_is_empty_and_listed_once_it_has_a_line(
        self, persistence: SessionPersistence
    ) -> None:
        log = await persistence.create_log(session_id_of(1))
        assert (log.session_id, log.size_bytes, log.read(0, 100)) == (session_id_of(1), 0, b"")
        log.append(LogBuilder().start().finish("").content, expected_bytes=0)
        assert persistence.session_ids() == [session_id_of(1)]

    async def test_what_was_appended_is_read_back_byte_for_byte(
        self, persistence: SessionPersistence
    ) -> None:
        builder = LogBuilder().start().say("one", "two").finish("onetwo")
        log = await kept(persistence, builder)
        assert log.read(0, 1 << 20) == builder.content
        assert log.read(7, 11) == builder.content[7:18]
        assert log.size_bytes == len(builder.content)

    async def test_reading_at_and_past_the_end_gives_nothing(self, persistence: SessionPersistence) -> None:
        log = await kept(persistence, LogBuilder().start().finish(""))
        assert log.read(log.size_bytes, 10) == b""
        assert log.read(log.size_bytes + 5, 10) == b""
        assert log.read(log.size_bytes - 1, 10) == b"\n"

    async def test_an_append_that_expects_another_size_changes_nothing(
        self, persistence: SessionPersistence
    ) -> None:
        builder = LogBuilder().start().finish("")
        log = await kept(persistence, builder)
        builder.follow_up().finish("")
        with pytest.raises(StorageUnavailable):
            log.append(builder.batches[-1], expected_bytes=log.size_bytes - 1)
        assert log.read(0, 1 << 20) == b"".join(builder.batches[:2])

    async def test_every_event_is_found_by_its_index(self, persistence: SessionPersistence) -> None:
        builder = LogBuilder().start()
        builder.say(*("x" * (37 * number % 5000) for number in range(300)))
        builder.finish("".join("x" * (37 * number % 5000) for number in range(300)))
        log = await kept(persistence, builder)
        offset = 0
        for index, line in enumerate(builder.lines):
            assert log.offset_of(index) == offset
            offset += len(line)
        assert log.offset_of(len(builder.lines)) == log.size_bytes
        assert log.offset_of(10**14) == log.size_bytes

    async def test_lines_of_a_mebibyte_are_found_too(self, persistence: SessionPersistence) -> None:
        sizes = [10, (1 << 20) - 300, 20, 30, (1 << 20) - 300, (1 << 20) - 300, 5]
        builder = LogBuilder().start()
        for size in sizes:
            builder.say("x" * size)
        builder.put(("turn.cancelling", {"turnId": builder.turn_id, "reason": "enough"}))
        builder.put(("turn.cancelled", {"turnId": builder.turn_id, "reason": "enough"}))
        log = await kept(persistence, builder)
        offset = 0
        for index, line in enumerate(builder.lines):
            assert log.offset_of(index) == offset
            offset += len(line)

    async def test_an_empty_log_has_its_first_event_at_its_end(self, persistence: SessionPersistence) -> None:
        log = await persistence.create_log(session_id_of(1))
        assert log.offset_of(0) == 0
        assert log.offset_of(5) == 0
        persistence.discard_log(log)

    async def test_a_sync_may_be_waited_for_by_many(self, persistence: SessionPersistence) -> None:
        log = await kept(persistence, LogBuilder().start().finish(""))
        await asyncio.gather(*(log.sync() for _ in range(50)))
        await log.sync()

    async def test_a_log_opened_again_goes_on_where_it_ended(self, persistence: SessionPersistence) -> None:
        builder = LogBuilder().start().finish("")
        (await kept(persistence, builder)).close()
        log = persistence.open_log(builder.session_id)
        builder.follow_up().finish("")
        for batch in builder.batches[2:]:
            log.append(batch, expected_bytes=log.size_bytes)
        assert log.read(0, 1 << 20) == builder.content

    async def test_a_closed_log_refuses_and_closing_twice_is_nothing(
        self, persistence: SessionPersistence
    ) -> None:
        builder = LogBuilder().start().finish("")
        log = await kept(persistence, builder)
        log.close()
        log.close()
        with pytest.raises(StorageUnavailable):
            log.append(b"{}\n", expected_bytes=len(builder.content))
        with pytest.raises(StorageUnavailable):
            log.read(0, 10)

    async def test_peeking_shows_the_same_bytes_and_takes_none(self, persistence: SessionPersistence) -> None:
        builder = LogBuilder().start().finish("")
        owner = await kept(persistence, builder)
        log = persistence.peek_log(builder.session_id)
        assert log.read(0, 1 << 20) == builder.content
        assert log.offset_of(2) == len(builder.lines[0] + builder.lines[1])
        with pytest.raises(StorageUnavailable):
            log.append(b"{}\n", expected_bytes=log.size_bytes)
        log.close()
        builder.follow_up().finish("")
        for batch in builder.batches[2:]:
            owner.append(batch, expected_bytes=owner.size_bytes)

    async def test_a_peek_ends_where_the_log_ended_when_it_was_made(
        self, persistence: SessionPersistence
    ) -> None:
        builder = LogBuilder().start()
        owner = await kept(persistence, builder)
        log = persistence.peek_log(builder.session_id)
        size_bytes = log.size_bytes
        builder.finish("")
        owner.append(builder.batches[-1], expected_bytes=owner.size_bytes)
        assert (log.size_bytes, log.read(0, 1 << 20)) == (size_bytes, builder.batches[0])

    async def test_a_session_that_is_there_is_not_made_again(self, persistence: SessionPersistence) -> None:
        builder = LogBuilder().start().finish("")
        log = await kept(persistence, builder)
        with pytest.raises(StorageUnavailable):
            await persistence.create_log(builder.session_id)
        assert log.read(0, 1 << 20) == builder.content

    @pytest.mark.parametrize(
        "name",
        [
            "ses_1",
            "",
            "../" + session_id_of(1),
            session_id_of(1).upper(),
            session_id_of(1) + "\n",
            "ses_" + "u" * 26,
        ],
    )
    async def test_what_is_no_session_id_is_no_session(
        self, persistence: SessionPersistence, name: str
    ) -> None:
        session_id = SessionId(name)
        with pytest.raises(SessionNotFound):
            persistence.open_log(session_id)
        with pytest.raises(SessionNotFound):
            persistence.peek_log(session_id)
        with pytest.raises(SessionNotFound):
            await persistence.create_log(session_id)
        with pytest.raises(SessionNotFound):
            await persistence.mark(session_id, MARK_RUNNING)
        with pytest.raises(SessionNotFound):
            await persistence.write_snapshot(session_id, b"{}")
        with pytest.raises(SessionNotFound):
            await persistence.delete(session_id)
        persistence.unmark([session_id])
        assert persistence.read_snapshot(session_id) is None

    async def test_an_unknown_session_is_not_found(self, persistence: SessionPersistence) -> None:
        with pytest.raises(SessionNotFound):
            persistence.open_log(session_id_of(9))
        with pytest.raises(SessionNotFound):
            persistence.peek_log(session_id_of(9))
        assert persistence.read_snapshot(session_id_of(9)) is None

    async def test_a_session_without_a_line_is_not_found_and_gone(
        self, persistence: SessionPersistence
    ) -> None:
        (await persistence.create_log(session_id_of(1))).close()
        with pytest.raises(SessionNotFound):
            persistence.open_log(session_id_of(1))
        assert (persistence.session_ids(), persistence.marks()) == ([], {})

    async def test_a_discarded_log_is_forgotten(self, persistence: SessionPersistence) -> None:
        builder = LogBuilder().start()
        log = await kept(persistence, builder)
        persistence.discard_log(log)
        assert (persistence.session_ids(), persistence.marks()) == ([], {})
        with pytest.raises(SessionNotFound):
            persistence.open_log(builder.session_id)

    async def test_sessions_are_listed_oldest_first(self, persistence: SessionPersistence) -> None:
        for number in (5, 1, 300):
            await kept(persistence, LogBuilder(session_id_of(number)).start().finish(""))
        assert persistence.session_ids() == [session_id_of(1), session_id_of(5), session_id_of(300)]

    # -- marks -----------------------------------------------------------------------------------------------

    async def test_a_new_session_is_marked_running(self, persistence: SessionPersistence) -> None:
        await kept(persistence, LogBuilder().start().finish(""))
        assert persistence.marks() == {session_id_of(1): MARK_RUNNING}

    async def test_a_mark_says_what_it_was_last_set_to(self, persistence: SessionPersistence) -> None:
        await kept(persistence, LogBuilder().start().finish(""))
        for text in (
            MARK_STOPPED,
            "parked 0",
            MARK_RUNNING,
            "parked 1764428400123",
            MARK_RUNNING,
            MARK_RUNNING,
        ):
            await persistence.mark(session_id_of(1), text)
            assert persistence.marks() == {session_id_of(1): text}

    async def test_marks_are_removed_together_and_may_be_set_again(
        self, persistence: SessionPersistence
    ) -> None:
        for number in range(3):
            await kept(persistence, LogBuilder(session_id_of(number)).start().finish(""))
        persistence.unmark([session_id_of(0), session_id_of(2), session_id_of(77)])
        assert persistence.marks() == {session_id_of(1): MARK_RUNNING}
        await persistence.mark(session_id_of(0), MARK_RUNNING)
        assert set(persistence.marks()) == {session_id_of(0), session_id_of(1)}

    async def test_a_mark_that_is_to_go_may_become_a_new_session_s(
        self, persistence: SessionPersistence
    ) -> None:
        await kept(persistence, LogBuilder(session_id_of(1)).start().finish(""))
        (await persistence.create_log(session_id_of(2), session_id_of(1))).close()
        assert persistence.marks() == {session_id_of(2): MARK_RUNNING}
        await persistence.mark(session_id_of(1), MARK_RUNNING)
        assert set(persistence.marks()) == {session_id_of(1), session_id_of(2)}

    # -- snapshots -------------------------------------------------------------------------------------------

    async def test_a_snapshot_is_what_was_last_written(self, persistence: SessionPersistence) -> None:
        builder = LogBuilder().start()
        log = await kept(persistence, builder)
        assert persistence.read_snapshot(builder.session_id) is None
        await persistence.write_snapshot(builder.session_id, builder.snapshot)
        builder.finish("")
        log.append(builder.batches[-1], expected_bytes=log.size_bytes)
        await persistence.write_snapshot(builder.session_id, builder.snapshot)
        assert persistence.read_snapshot(builder.session_id) == builder.snapshot

    async def test_of_snapshots_written_at_once_the_last_one_stays(
        self, persistence: SessionPersistence
    ) -> None:
        builder = LogBuilder().start().finish("")
        await kept(persistence, builder)
        older = [b"%d" % number for number in range(20)]
        await asyncio.gather(
            *(persistence.write_snapshot(builder.session_id, raw) for raw in (*older, builder.snapshot))
        )
        assert persistence.read_snapshot(builder.session_id) == builder.snapshot

    async def test_a_session_that_is_not_there_gets_no_snapshot(
        self, persistence: SessionPersistence
    ) -> None:
        with pytest.raises(SessionNotFound):
            await persistence.write_snapshot(session_id_of(4), b"{}")
        assert persistence.read_snapshot(session_id_of(4)) is None

    # -- end -------------------------------------------------------------------------------------------------

    async def test_a_deleted_session_is_gone_with_all_it_had(self, persistence: SessionPersistence) -> None:
        builder = LogBuilder().start().finish("")
        log = await kept(persistence, builder)
        await persistence.write_snapshot(builder.session_id, builder.snapshot)
        log.close()
        await persistence.delete(builder.session_id)
        await persistence.delete(builder.session_id)
        assert (persistence.session_ids(), persistence.marks()) == ([], {})
        assert persistence.read_snapshot(builder.session_id) is None
        with pytest.raises(SessionNotFound):
            persistence.open_log(builder.session_id)

    async def test_a_deletion_is_final_whatever_snapshot_is_under_way(
        self, persistence: SessionPersistence
    ) -> None:
        builder = LogBuilder().start().finish("")
        (await kept(persistence, builder)).close()
        writing = [
            asyncio.ensure_future(persistence.write_snapshot(builder.session_id, builder.snapshot))
            for _ in range(5)
        ]
        await asyncio.sleep(0)
        await persistence.delete(builder.session_id)
        await asyncio.gather(*writing, return_exceptions=True)
        assert persistence.read_snapshot(builder.session_id) is None

    async def test_when_a_log_was_last_written_is_known_or_said_to_be_unknown(
        self, persistence: SessionPersistence
    ) -> None:
        before_ms = time.time_ns() // 1_000_000
        await kept(persistence, LogBuilder(session_id_of(1)).start().finish(""))
        at_ms = persistence.last_written_ms(session_id_of(1))
        assert at_ms == 0 or before_ms - 1_000 <= at_ms <= time.time_ns() // 1_000_000 + 1_000
        assert persistence.last_written_ms(session_id_of(2)) == 0

    async def test_a_started_place_can_be_written_to(self, persistence: SessionPersistence) -> None:
        persistence.check_writable()


async def test_bytes_in_memory_that_are_no_lines_are_not_searched() -> None:
    log = await MemorySessionPersistence().create_log(session_id_of(1))
    log.append(b"no event\n", expected_bytes=0)
    with pytest.raises(StorageUnavailable, match="broken"):
        log.offset_of(1)


class TestFiles(PersistencePromises):
    @pytest.fixture(params=["boundary", "never"])
    def persistence(self, request: pytest.FixtureRequest, data_dir: Path) -> Iterator[SessionPersistence]:
        persistence = FileHttpSessionPersistence(data_dir, fsync=request.param)
        persistence.start()
        yield persistence
        persistence.stop()


class TestMemory(PersistencePromises):
    @pytest.fixture
    def persistence(self) -> Iterator[SessionPersistence]:
        persistence = MemorySessionPersistence()
        persistence.start()
        yield persistence
        persistence.stop()
