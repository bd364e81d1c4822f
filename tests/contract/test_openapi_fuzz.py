"""The host does what its OpenAPI document says: schemathesis makes the requests, a host on a port answers them."""

from __future__ import annotations

import copy
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
import pytest
import schemathesis
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.checks import ensure_resource_availability, positive_data_acceptance
from schemathesis.config import SchemathesisConfig

from tests.conftest import check_directory
from tests.documented import DOCUMENT, check_event
from tests.integration.live import Script, Serving, served
from zhin_host import create_agent_session_host
from zhin_host.http import BearerTokens

TOKEN: Final = "ada-0123456789abcdef"
HEADERS: Final = {"Authorization": f"Bearer {TOKEN}"}

Case = schemathesis.Case[Any]

MESSAGES: Final = {
    "resume": "fail it",
    "answer": "approve it",
    "answer_relayed": "approve it",
    "authorize": "authorize forge",
}
"""What the agent is asked, for the session to be in the state that an operation is for; else to say something."""

BOUNDS: Final = ("an integer beyond 64 bits", "is nested deeper than", "over the limit of")
"""What the document tells in words, as no schema can."""

WALK_TRIES: Final = 5
SETTINGS: Final = settings(
    max_examples=20,
    deadline=None,  # the machine may be busy
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # a failure is shown as it was found: sessions cannot be shrunk
    suppress_health_check=list(HealthCheck),  # the host's fixture outlives an example on purpose
)
# Parameters that no route knows are ignored, as the document says; schemathesis would take that for a mistake.
CONFIG: Final = SchemathesisConfig.from_dict({"generation": {"allow-extra-parameters": False}})
SCHEMA: Final = schemathesis.openapi.from_dict(copy.deepcopy(DOCUMENT), config=CONFIG)  # deep: it is changed
WALKS: Final[Any] = SCHEMA.as_state_machine()


class Stage:
    """A host, and sessions of it in the state that a request is for."""

    def __init__(self, portal: BlockingPortal, serving: Serving) -> None:
        self._portal = portal
        self._serving = serving

    def url_of(self, case: Case) -> str:
        """The server of the request's operation."""
        server = DOCUMENT["paths"][case.operation.path].get("servers", DOCUMENT["servers"])[0]["url"]
        return f"http://localhost:{self._serving.port}{server}".removesuffix("/")

    def rest(self, session: Mapping[str, Any]) -> list[str]:
        """Wait until the session is at rest; its open requests."""
        events = self._portal.call(self._serving.events, session)
        return list(events[-1]["data"].get("pendingRequestIds", []))

    def make_real(self, case: Case) -> None:
        """Have a request, whose form is right, mean a session in the state that its operation is for."""
        name = name_of(case)
        body = case.body if isinstance(case.body, dict) else {}
        if name == "start":
            body.pop("agent", None)  # one that the host has not
            return
        is_question = name == "answer" and "response" in body
        message = "ask me" if is_question else MESSAGES.get(name, "say x")
        session = self._portal.call(self._serving.start, message)
        session_id, request_id = session["sessionId"], next(iter(self.rest(session)), None)
        real: dict[str, dict[str, Any]] = {
            "proceed": {"continuationToken": session["continuationToken"]},
            "resume": {"continuationToken": session["continuationToken"]},
            "answer": {"requestId": request_id},
            "answer_relayed": {"traceId": session_id, "promptId": request_id, "response": "approve"},
            "authorize": {"sessionId": session_id},
        }
        body.update(real.get(name, {}))
        for parameter in case.path_parameters:
            case.path_parameters[parameter] = request_id if parameter == "request_id" else session_id
        if name == "stream":
            case.query["until"] = "tail"  # nothing else will be said there


def name_of(case: Case) -> str:
    return str(case.operation.definition.raw["operationId"])


def form_of(case: Case) -> int:
    """A number that is the same in every run: what half of the requests have in common."""
    return zlib.crc32(repr((case.path_parameters, case.query, case.headers, case.body)).encode())


def beside_the_point(response: schemathesis.Response) -> list[Any]:
    """The checks that an answer fails though it is the right one."""
    if response.status_code == 400 and any(bound in response.text for bound in BOUNDS):
        return [positive_data_acceptance]  # the schema takes it, the words of the document do not
    if response.status_code == 404 and "REQUEST_NOT_FOUND" in response.text:
        return [ensure_resource_availability]  # the session of the link is there; the request was never made
    return []


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    data_dir = tmp_path_factory.mktemp("fuzz") / "sessions"
    tokens = BearerTokens({"ada": TOKEN})
    host = create_agent_session_host(Script(), data_dir=data_dir, authenticator=tokens)
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(served(host)) as serving,
    ):
        serving.client.headers.update(HEADERS)
        yield Stage(portal, serving)
    check_directory(data_dir)


@pytest.fixture
def answers(stage: Stage) -> Iterator[Counter[int]]:
    """The statuses of the test's operation. At the end it must have done what it is for, or nothing was shown."""
    counted: Counter[int] = Counter()
    yield counted
    assert any(200 <= status < 300 for status in counted), counted


@SCHEMA.parametrize()
@SETTINGS
def test_every_request_made_from_the_document_is_answered_as_it_says(
    case: Case, stage: Stage, answers: Counter[int]
) -> None:
    form = form_of(case)
    if case.meta is not None and case.meta.generation.mode.is_positive and form % 2:
        stage.make_real(case)
    if name_of(case) == "stream" and form % 3:
        case.headers["Accept"] = "text/event-stream"
    where = stage.url_of(case)
    response = case.call(base_url=where, headers=HEADERS, timeout=20)
    case.validate_response(
        response,
        headers=HEADERS,
        excluded_checks=beside_the_point(response),
        transport_kwargs={"base_url": where, "timeout": 20},
    )
    answers[response.status_code] += 1
    if response.headers.get("content-type", [""])[0].startswith("application/x-ndjson"):
        for line in filter(None, response.content.split(b"\n")):
            check_event(orjson.loads(line))


def test_sessions_found_by_the_links_of_the_document_do_as_it_says(stage: Stage) -> None:
    class Walk(WALKS):  # type: ignore[misc]  # it is made of the document
        """From a new session along the links: to look, follow, answer, end, delete, and look again."""

        def before_call(self, case: Case) -> None:
            if name_of(case) == "stream":
                case.query["until"] = "tail"

        def get_call_kwargs(self, case: Case) -> dict[str, Any]:
            return {"base_url": stage.url_of(case), "headers": HEADERS, "timeout": 20}

        def after_call(self, response: schemathesis.Response, case: Case) -> None:
            super().after_call(response, case)
            if name_of(case) in {"start", "proceed", "resume"} and response.status_code == 200:
                stage.rest(response.json())  # so that what the next request meets is the same in every run

        def validate_response(
            self, response: schemathesis.Response, case: Case, *args: Any, **more: Any
        ) -> None:
            seen[name_of(case), response.status_code] += 1
            case.validate_response(
                response,
                excluded_checks=beside_the_point(response),
                transport_kwargs=more,
                recorder=self.recorder,
            )

    seen: Counter[tuple[str, int]] = Counter()
    for tries_left in reversed(range(WALK_TRIES)):
        try:
            run_state_machine_as_test(
                Walk, settings=settings(SETTINGS, max_examples=20, stateful_step_count=8)
            )
            break
        except (
            FlakyStrategyDefinition
        ):  # a turn was faster or slower than when these steps were first taken: walk anew
            if not tries_left:
                raise
    done = {name for name, status in seen if 200 <= status < 300}
    assert len(done) >= 6, seen
