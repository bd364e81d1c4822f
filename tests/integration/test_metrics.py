"""GET /metrics: what a scraper gets, who may scrape, and that it walks no disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.budget.counting import CountingFileSystem
from tests.documented import check_response
from tests.integration.live import Script, Serving, served
from zhin_host import create_agent_session_host
from zhin_host.http import BearerTokens
from zhin_host.ports import Principal
from zhin_host.storage.files import FileHttpSessionPersistence

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
async def live(data_dir: Path) -> AsyncIterator[Serving]:
    async with served(create_agent_session_host(Script(), data_dir=data_dir)) as serving:
        yield serving


def scraper(live: Serving) -> httpx.AsyncClient:
    """A client whose paths begin at the root."""
    hooks = {"response": [check_response]}
    return httpx.AsyncClient(base_url=f"http://localhost:{live.port}", event_hooks=hooks)


async def scraped(live: Serving, **headers: str) -> httpx.Response:
    async with scraper(live) as client:
        return await client.get("/metrics", headers=headers)


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_scraper_reads_turns_streams_and_the_process(live: Serving) -> None:
    await live.events(await live.start("hello"))
    await live.events(await live.start("fail"))
    await live.parked("approve")
    Serving.refused(await live.client.get("/session/nonsense"), 404, "SESSION_NOT_FOUND")
    response = await scraped(live)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert response.headers["cache-control"] == "no-store"
    found = samples(response.text)
    assert found["zhin_host_turns_total", (("agent", "scripted"), ("end", "completed"))] == 1
    assert found["zhin_host_turns_total", (("agent", "scripted"), ("end", "failed"))] == 1
    assert found["zhin_host_turns_total", (("agent", "scripted"), ("end", "cancelled"))] == 0
    assert found["zhin_host_turns_parked", ()] == 1
    assert found["zhin_host_sessions", ()] == 3
    assert found["zhin_host_refusals_total", (("code", "SESSION_NOT_FOUND"),)] == 1
    assert (
        found["zhin_host_append_seconds_bucket", (("le", "+Inf"),)]
        == found["zhin_host_append_seconds_count", ()]
    )
    assert found["zhin_host_append_seconds_count", ()] >= 6
    assert found["zhin_host_sync_seconds_sum", ()] > 0
    assert found["process_resident_memory_bytes", ()] > 1_000_000
    assert "ses_" not in response.text  # nothing that grows with the sessions is a label


async def test_a_scraper_that_asks_for_openmetrics_gets_it(live: Serving) -> None:
    response = await scraped(live, accept="application/openmetrics-text; version=1.0.0")
    assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert response.text.endswith("# EOF\n")


@pytest.mark.parametrize("version", ["foo", "1.x.0", "", "99.0.0"])
async def test_a_scraper_that_asks_for_what_there_is_not_gets_the_plain_text(
    live: Serving, version: str
) -> None:
    response = await scraped(live, accept=f"application/openmetrics-text;version={version}")
    assert response.status_code == 200
    assert "zhin_host_sessions 0.0\n" in response.text


async def test_refusals_of_every_kind_are_counted_by_their_code(live: Serving) -> None:
    assert (await live.client.get("/nothing")).status_code == 404
    assert (await live.client.put("/session")).status_code == 405
    assert (await live.client.get("/info", headers={"host": "evil.example"})).status_code == 403
    assert live.host.meters.refusals == {"NOT_FOUND": 1, "METHOD_NOT_ALLOWED": 1, "FORBIDDEN": 1}


async def test_two_hosts_of_a_process_count_apart(live: Serving, tmp_path: Path) -> None:
    async with served(create_agent_session_host(Script(), data_dir=tmp_path / "other")) as other:
        await other.events(await other.start("hello"))
        key = ("zhin_host_turns_total", (("agent", "scripted"), ("end", "completed")))
        assert samples((await scraped(live)).text)[key] == 0
        assert samples((await scraped(other)).text)[key] == 1


async def test_any_known_caller_may_scrape_and_nobody_else(data_dir: Path) -> None:
    tokens = BearerTokens({"scraper-0123456789": Principal("prometheus", frozenset({"read"}))})
    host = create_agent_session_host(Script(), data_dir=data_dir, authenticator=tokens)
    async with served(host) as serving:
        assert (await scraped(serving)).status_code == 401
        assert (await scraped(serving, authorization="Bearer scraper-9876543210")).status_code == 401
        assert (await scraped(serving, authorization="Bearer scraper-0123456789")).status_code == 200
        forged = await scraped(serving, authorization="Bearer scraper-0123456789", host="evil.example")
        assert forged.status_code == 403


async def test_only_get_and_head_are_for_metrics(live: Serving) -> None:
    async with scraper(live) as client:
        head = await client.head("/metrics")
        assert (head.status_code, head.content) == (200, b"")
        assert (await client.post("/metrics")).status_code == 405


async def test_a_scrape_calls_no_file_of_the_data_directory(data_dir: Path) -> None:
    fs = CountingFileSystem()
    host = create_agent_session_host(Script(), persistence=FileHttpSessionPersistence(data_dir, fs=fs))
    async with served(host) as serving:
        session, _ = await serving.parked("approve")
        await host.store.view(Principal(), session["sessionId"])
        fs.take()
        host.gauges()
        before = fs.take()
        response = await scraped(serving)
        assert response.status_code == 200
        assert before == {}
        assert {name for name in fs.take() if name.endswith((".ndjson", ".json", ".open"))} == set()
