"""Every error of a host is one of the client's, of the same kind."""

from __future__ import annotations

from zhin_host import errors as wire
from zhin_host.client import BadRequest, ClientError, Conflict, NotFound, Unavailable
from zhin_host.client.errors import refusal


def every_class(of: type[wire.RequestError]) -> list[type[wire.RequestError]]:
    return [of, *(found for kind in of.__subclasses__() for found in every_class(kind))]


def test_every_code_of_the_host_becomes_an_error_of_its_kind() -> None:
    for kind in every_class(wire.RequestError):
        error = refusal(kind.code, kind.status, "It is so.", {}, None)
        assert isinstance(error, ClientError)
        assert isinstance(error, NotFound) == issubclass(kind, wire.NotFound), kind
        assert isinstance(error, Conflict) == issubclass(kind, wire.Conflict), kind
        assert (error.code, error.status) == (kind.code, kind.status)


def test_a_code_of_a_later_host_becomes_the_kind_of_its_status() -> None:
    assert type(refusal("NEW", 409, "", {}, None)) is Conflict
    assert type(refusal("NEW", 418, "", {}, None)) is BadRequest
    assert type(refusal("NEW", 511, "", {}, None)) is Unavailable


def test_only_what_time_mends_is_transient() -> None:
    transient = {
        kind.code
        for kind in every_class(wire.RequestError)
        if refusal(kind.code, kind.status, "", {}, None).is_transient
    }
    assert transient == {
        "REQUEST_TIMEOUT",
        "TOO_MANY_SESSIONS",
        "TOO_MANY_STREAMS",
        "AGENT_UNAVAILABLE",
        "SHUTTING_DOWN",
        "STORAGE_UNAVAILABLE",
    }
