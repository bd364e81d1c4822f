"""Bodies: what is taken, and what is refused with which sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from starlette.types import Message

from zhin_host.clock import is_session_id
from zhin_host.config import Config
from zhin_host.errors import BadRequest, BodyTimeout, BodyTooLarge, RequestError, UnsupportedMediaType
from zhin_host.http import schema

JSON = {b"content-type": b"application/json"}
CONFIG = Config(body_bytes_max=256, body_depth_max=4, body_timeout_s=0.05, metadata_bytes_max=32)


class Sender:
    """A client that sends the chunks it is given, then nothing more."""

    def __init__(self, *chunks: bytes, is_whole: bool = True) -> None:
        self._chunks = list(chunks) or [b""]
        self._is_whole = is_whole
        self.taken = 0

    async def __call__(self) -> Message:
        if self.taken == len(self._chunks):
            await asyncio.Event().wait()
        self.taken += 1
        more = self.taken < len(self._chunks) or not self._is_whole
        return {"type": "http.request", "body": self._chunks[self.taken - 1], "more_body": more}


async def test_a_body_in_any_number_of_chunks_is_one_object() -> None:
    body = b'{"message":"hello"}'
    chunks = [body[at : at + 1] for at in range(len(body))]
    assert await schema.read_object(JSON, Sender(*chunks), CONFIG) == {"message": "hello"}


async def test_no_body_is_an_empty_object_whatever_the_media_type() -> None:
    assert await schema.read_object({}, Sender(), CONFIG) == {}


@pytest.mark.parametrize(
    "media_type", [b"application/json", b"Application/JSON; charset=utf-8", b" application/json ;x=y"]
)
async def test_application_json_may_have_parameters_and_any_case(media_type: bytes) -> None:
    assert await schema.read_object({b"content-type": media_type}, Sender(b"{}"), CONFIG) == {}


@pytest.mark.parametrize(
    "media_type",
    [
        b"",
        b"text/plain",
        b"application/x-www-form-urlencoded",
        b"application/jsonp",
        b"application/json, text/plain",
    ],
)
async def test_a_body_of_another_media_type_is_refused(media_type: bytes) -> None:
    with pytest.raises(UnsupportedMediaType, match="application/json"):
        await schema.read_object({b"content-type": media_type}, Sender(b"{}"), CONFIG)


async def test_an_encoded_body_is_refused_unread() -> None:
    sender = Sender(b"{}")
    with pytest.raises(UnsupportedMediaType, match="Content-Encoding"):
        await schema.read_object({**JSON, b"content-encoding": b"gzip"}, sender, CONFIG)
    assert sender.taken == 0


async def test_a_body_declared_too_large_is_refused_unread() -> None:
    for declared in (b"257", b"9" * 400):
        sender = Sender(b"{}")
        with pytest.raises(BodyTooLarge, match="256 bytes"):
            await schema.read_object({**JSON, b"content-length": declared}, sender, CONFIG)
        assert sender.taken == 0


async def test_a_body_that_turns_out_too_large_is_refused_where_it_does() -> None:
    sender = Sender(b" " * 200, b" " * 200, b" " * 200)
    with pytest.raises(BodyTooLarge):
        await schema.read_object(JSON, sender, CONFIG)
    assert sender.taken == 2


async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    assert await schema.read_object(JSON, Sender(b"{}" + b" " * 254), CONFIG) == {}


async def test_a_body_that_does_not_arrive_in_time_is_refused() -> None:
    with pytest.raises(BodyTimeout, match=r"0\.05 s"):
        await schema.read_object(JSON, Sender(b"{", is_whole=False), CONFIG)


async def test_a_client_that_leaves_within_the_body_gets_nothing_done() -> None:
    async def leave() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(BadRequest, match="closed"):
        await schema.read_object(JSON, leave, CONFIG)


HOSTILE = {
    "nothing but a brace": b"{",
    "two documents": b"{}{}",
    "an array": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "NaN": b'{"message":NaN}',
    "Infinity": b'{"message":-Infinity}',
    "a number beyond doubles": b'{"message":1e400}',
    "a comment": b'{"message":1/*x*/}',
    "single quotes": b"{'message':'x'}",
    "a trailing comma": b'{"message":"x",}',
    "a byte order mark": b'\xef\xbb\xbf{"message":"x"}',
    "UTF-16": '{"message":"x"}'.encode("utf-16"),
    "bytes that are no UTF-8": b'{"message":"\xff"}',
    "an overlong encoding": b'{"message":"\xc0\xaf"}',
    "an encoded lone surrogate": b'{"message":"\xed\xa0\x80"}',
    "an escaped high surrogate alone": b'{"message":"\\ud800"}',
    "an escaped low surrogate alone": b'{"message":"\\udc00"}',
    "escaped surrogates in the wrong order": b'{"message":"\\udc00\\ud800"}',
    "a lone surrogate in a key": b'{"\\ud800":1}',
    "a raw control character": b'{"message":"\x00"}',
    "an integer of 2^64": b'{"metadata":{"n":18446744073709551616}}',
    "an integer under -2^63": b'{"metadata":{"n":[-9223372036854775809]}}',
    "an integer of 100 digits": b'{"n":' + b"9" * 100 + b"}",
    "five levels where four are allowed": b'{"a":[[[[]]]]}',
    "very many levels": b'{"a":' + b"[" * 120 + b"]" * 120 + b"}",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_json_is_refused_with_a_sentence(body: bytes) -> None:
    with pytest.raises(BadRequest, match=r"^The body .+\.$"):
        schema.parse_object(body, 4)


@pytest.mark.parametrize(
    "body",
    [
        b'{"n":18446744073709551615}',
        b'{"n":-9223372036854775808}',
        b'{"n":"184467440737095516160"}',
        b'{"n":0.12345678901234567890123}',
        b'{"n":"\\ud83d\\ude00"}',
        b'{"a":[[[]]]}',
        b'{"a":"[[[[[[{{{{"}',
        b'{"a":[],"b":[],"c":[],"d":[],"e":[]}',
    ],
)
def test_what_only_looks_hostile_is_taken_as_it_is(body: bytes) -> None:
    assert schema.parse_object(body, 4) == orjson.loads(body)


def test_the_deepest_allowed_body_is_taken_and_one_level_more_is_not() -> None:
    levels = 64
    schema.parse_object(b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}", levels)
    with pytest.raises(BadRequest, match="deeper than 64"):
        schema.parse_object(b'{"a":' + b"[" * levels + b"]" * levels + b"}", levels)


def start(body: dict[str, Any]) -> object:
    return schema.start_of(body, CONFIG)


WRONG_FIELDS: list[tuple[Callable[[dict[str, Any]], object], dict[str, Any], str]] = [
    (start, {}, "message"),
    (start, {"message": None}, "message"),
    (start, {"message": 1}, "message"),
    (start, {"message": ""}, "message is blank"),
    (start, {"message": " \n\t\u3000"}, "message is blank"),
    (start, {"message": {}}, "message"),
    (start, {"message": []}, "message"),
    (start, {"message": ["x"]}, r"message\[0\]"),
    (start, {"message": [{"type": "text", "text": "x"}, {"type": "image"}]}, r"message\[1\]"),
    (start, {"message": [{"type": "text"}]}, r"message\[0\]"),
    (start, {"message": [{"type": "text", "text": None}]}, r"message\[0\]"),
    (start, {"message": [{"type": "text", "text": " "}, {"type": "text", "text": ""}]}, "blank"),
    (start, {"message": "x", "metadata": []}, "metadata"),
    (start, {"message": "x", "metadata": "x"}, "metadata"),
    (start, {"message": "x", "metadata": {"k": "x" * 32}}, "metadata is 40 bytes"),
    (start, {"message": "x", "agent": 1}, "agent"),
    (schema.follow_up_of, {"message": "x"}, "continuationToken is missing"),
    (schema.follow_up_of, {"message": "x", "continuationToken": 5}, "continuationToken is not a string"),
    (schema.follow_up_of, {"continuationToken": "t"}, "message"),
    (
        schema.follow_up_of,
        {"message": "x", "continuationToken": "t", "onBusy": "wait"},
        "onBusy is one of reject, queue, interrupt, not 'wait'",
    ),
    (schema.follow_up_of, {"message": "x", "continuationToken": "t", "onBusy": True}, "onBusy"),
    (schema.answer_of, {"approved": True}, "requestId is missing"),
    (schema.answer_of, {"requestId": "r"}, "exactly one"),
    (schema.answer_of, {"requestId": "r", "approved": True, "response": 1}, "exactly one"),
    (schema.answer_of, {"requestId": "r", "approved": "true"}, "approved is not true or false"),
    (schema.answer_of, {"requestId": "r", "approved": 1}, "approved is not true or false"),
    (schema.answer_of, {"requestId": "r", "approved": None}, "approved is missing"),
    (schema.answer_of, {"requestId": "r", "approved": True, "comment": []}, "comment"),
    (schema.relayed_of, {"promptId": "r", "response": 1}, "traceId"),
    (schema.relayed_of, {"traceId": "s", "response": 1}, "promptId"),
    (schema.relayed_of, {"traceId": "s", "promptId": "r"}, "response is missing"),
    (schema.authorization_of, {}, "success is missing"),
    (schema.authorization_of, {"success": "yes"}, "success is not true or false"),
    (schema.authorization_of, {"success": True, "error": 1}, "error"),
    (schema.authorization_of, {"success": True, "sessionId": 1}, "sessionId"),
    (schema.end_of, {}, "outcome is missing"),
    (schema.end_of, {"outcome": "cancelled"}, "outcome is completed or failed"),
    (schema.end_of, {"outcome": "failed", "message": 1}, "message"),
]


@pytest.mark.parametrize(
    ("parse", "body", "sentence"), WRONG_FIELDS, ids=[f"{row[0].__name__}-{row[1]}" for row in WRONG_FIELDS]
)
def test_a_wrong_field_is_named(
    parse: Callable[[dict[str, Any]], object], body: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadRequest, match=sentence) as refusal:
        parse(body)
    assert str(refusal.value).endswith(".")


def test_unknown_fields_are_ignored_and_null_counts_as_absent() -> None:
    body = {"message": "x", "metadata": None, "agent": None, "text": 5, "owner": "somebody"}
    assert schema.start_of(body, CONFIG) == schema.Start("x", None, None)


def test_parts_keep_their_type_and_text_only() -> None:
    parts = [{"type": "text", "text": "a", "approved": True}, {"type": "text", "text": ""}]
    assert schema.message_of({"message": parts}) == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": ""},
    ]


def test_onbusy_reject_is_what_is_done_anyway() -> None:
    body = {"message": "x", "continuationToken": "t"}
    assert schema.follow_up_of(body) == schema.FollowUp("t", "x", "reject")
    assert schema.follow_up_of({**body, "onBusy": "reject"}) == schema.FollowUp("t", "x", "reject")


@pytest.mark.parametrize("response", [None, False, 0, "", [], {"a": [1]}])
def test_any_json_answers_a_question(response: Any) -> None:
    answer = schema.answer_of({"requestId": "r", "response": response})
    assert answer == schema.Answer("r", {"response": response}, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ses_",
        "../../etc/passwd",
        "ses_01JDQ3V2K0000000000000000A",
        "ses_01jdq3v2k000000000000000i0",  # no I, L, O, U in this alphabet
        "ses_01jdq3v2k000000000000000l0",
        "ses_01jdq3v2k000000000000000o0",
        "ses_01jdq3v2k000000000000000u0",
        "ses_01jdq3v2k0000000000000000",
        "ses_01jdq3v2k0000000000000000aa",
        "ses_01jdq3v2k0000000000000000a\n",
        "ses_01jdq3v2k0000000000000000\x00",
        "ses_\u0660\u06611jdq3v2k00000000000000aa",  # digits, but not of ASCII
        "CON",
        "x" * 300,
    ],
)
def test_what_is_no_session_id_is_told_from_one(text: str) -> None:
    assert not is_session_id(text)
    assert is_session_id("ses_01jdq3v2k0000000000000000a")


def test_every_refusal_is_a_request_error_with_a_status() -> None:
    for error in (BadRequest, BodyTimeout, BodyTooLarge, UnsupportedMediaType):
        assert issubclass(error, RequestError)
        assert 400 <= error.status < 500
