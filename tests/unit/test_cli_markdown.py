"""The Markdown export: whatever an agent, a tool or a person wrote stays text in its place."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from zhin_host.cli.markdown import Document, escaped, fenced, quoted, void_spans
from zhin_host.cli.terminal import visible, visible_lines

PARSER: Final = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
MARKUP: Final = "`~*_<>#+- \n\\[]()!&|1.=:;/\t\r'\"^$%@{}\u202e\x1b\u2028\xa0ab"
HOSTILE: Final = st.one_of(
    st.text(MARKUP, max_size=60),
    st.text(max_size=60),
    st.sampled_from(
        [
            "```\n# Heading\n```",
            "~~~~\n<script>alert(1)</script>",
            "    code\n\tcode",
            "a\n===\nb\n---",
            "| a | b |\n|---|---|\n| 1 | 2 |",
            "[x](javascript:alert(1)) ![i](http://e) <http://e> &lt;b&gt; &#60;",
            "1. one\n2) two\n- three\n\n> four",
            "[x]: http://e\n\n[x]",
            "ends with a backslash\\",
            "a  \nb\\\nc",
            "~~~struck~~ ~",
        ]
    ),
)
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | HOSTILE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE, inner, max_size=3),
    max_leaves=6,
)


def row(index: int, kind: str, /, **data: Any) -> dict[str, Any]:
    return {"index": index, "type": kind, "timestamp": 1_764_428_400_000 + index, "data": data}


def document(rows: list[dict[str, Any]], *, shows_void: bool = False) -> str:
    made = Document(void_spans(rows), shows_void=shows_void)
    return "".join(part + "\n\n" for part in made.parts(rows))


def inline(tokens: list[Token]) -> set[str]:
    return {child.type for token in tokens if token.children for child in token.children}


def text_of(token: Token) -> str:
    assert token.children is not None
    return "".join(
        "\n" if child.type in ("hardbreak", "softbreak") else child.content for child in token.children
    )


@settings(deadline=None)  # a machine may be busy
@given(HOSTILE)
def test_a_text_in_a_line_is_that_text(text: str) -> None:
    tokens = PARSER.parse(f"a{escaped(text)}a")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert text_of(tokens[1]) == f"a{visible(text)}a"


@settings(deadline=None)  # a machine may be busy
@given(HOSTILE, st.booleans())
def test_a_quote_holds_the_text_and_nothing_else(text: str, is_struck: bool) -> None:  # noqa: FBT001
    tokens = PARSER.parse(f"before\n\n{quoted(text, is_struck=is_struck)}\n\nafter")
    kinds = [token.type for token in tokens]
    assert kinds[:4] == ["paragraph_open", "inline", "paragraph_close", "blockquote_open"]
    assert kinds[-4:] == ["blockquote_close", "paragraph_open", "inline", "paragraph_close"]
    assert set(kinds[4:-4]) <= {"paragraph_open", "inline", "paragraph_close"}
    assert inline(tokens) <= {"text", "text_special", "hardbreak", "s_open", "s_close"}
    shown = "\n".join(text_of(token) for token in tokens[4:-4] if token.type == "inline")
    lines = [visible(line.removesuffix("\r").replace("\t", "    ").rstrip()) for line in text.split("\n")]
    if not is_struck:
        # A parser trims lines; spaces at their start are kept by name, which the next test sees.
        assert [line.strip() for line in shown.split("\n") if line.strip()] == [
            line.strip() for line in lines if line.strip()
        ]


def test_lines_and_their_indent_are_kept() -> None:
    assert quoted("a\n  b\n\n\tc\\") == "> a\\\n> &nbsp;&nbsp;b\n>\n> &nbsp;&nbsp;&nbsp;&nbsp;c\\\\"


@settings(deadline=None)  # a machine may be busy
@given(VALUES)
@example("```")
@example({"a": "````\n`````"})
def test_no_value_ends_its_block(value: Any) -> None:
    tokens = PARSER.parse(f"before\n\n{fenced(value)}\n\n# after")
    kinds = [token.type for token in tokens]
    assert kinds == [
        "paragraph_open", "inline", "paragraph_close", "fence", "heading_open", "inline", "heading_close",
    ]  # fmt: skip
    assert tokens[3].info == ("text" if isinstance(value, str) else "json")


@settings(deadline=None)  # a machine may be busy
@given(HOSTILE, VALUES, st.booleans())
def test_no_agent_text_breaks_out_of_its_block(text: str, value: Any, shows_void: bool) -> None:  # noqa: FBT001
    rows = [
        row(0, "session.started", sessionId="ses_1", agent=text, owner=text, metadata={"a": value}),
        row(1, "turn.started", turnId=text),
        row(2, "message.received", turnId="t", message=[{"type": "text", "text": text}]),
        row(3, "reasoning.appended", reasoningDelta=text),
        row(4, "message.appended", messageDelta=text),
        row(5, "actions.requested", callId=text, toolName=text, input=value),
        row(6, "step.resumed", attempt=2, discardFrom=3),
        row(7, "actions.requested", callId=text, toolName=text, input=value),
        row(
            8, "input.requested", requestId=text, kind=text, callId="c", prompt=text, toolName=text,
            args=value, options=[value],
        ),
        row(9, "input.completed", requestId=text, outcome=text, response=value, comment=text, by=text),
        row(10, "authorization.required", requestId=text, callId="c", connection=text, authUrl=text),
        row(11, "authorization.completed", requestId=text, connection=text, success=False, error=text, by=text),
        row(12, "action.retrying", toolName=text, attempt=2, error=value, delayMs=1),
        row(13, "action.result", callId=text, toolName=text, status=text, output=value, error=value, durationMs=1),
        row(14, "x.own", a=value, b=text),
        row(15, "message.completed", message=text, finishReason=text),
        row(16, "turn.failed", code=text, message=text),
        row(17, "turn.cancelled", reason=text, by=text),
        row(18, "session.failed", code=text, message=text),
    ]  # fmt: skip
    made = document(rows, shows_void=shows_void)
    tokens = PARSER.parse(made)
    allowed = {"heading", "paragraph", "bullet_list", "list_item", "blockquote"}
    assert {token.type.removesuffix("_open").removesuffix("_close") for token in tokens} <= allowed | {
        "inline", "fence",
    }  # fmt: skip
    assert inline(tokens) <= {
        "text", "text_special", "hardbreak", "softbreak",
        "strong_open", "strong_close", "em_open", "em_close", "s_open", "s_close",
    }  # fmt: skip
    assert sum(token.type == "heading_open" for token in tokens) == 2
    assert sum(token.type == "list_item_open" for token in tokens) == 3
    assert visible_lines(made) == made


def test_what_a_restart_voided_is_left_out_or_struck() -> None:
    rows = [
        row(0, "session.started", sessionId="ses_1", agent="demo"),
        row(1, "turn.started", turnId="t"),
        row(2, "message.received", turnId="t", message="go"),
        row(3, "message.appended", messageDelta="kept "),
        row(4, "action.result", callId="c", toolName="f", status="completed", output=1, durationMs=1),
        row(5, "message.appended", messageDelta="voi"),
        row(6, "message.appended", messageDelta="ded"),
        row(7, "step.resumed", attempt=2, discardFrom=5),
        row(8, "message.appended", messageDelta="said again"),
        row(9, "message.completed", message="kept said again", finishReason="stop"),
        row(10, "turn.completed", turnId="t"),
    ]
    made = document(rows)
    assert "voided" not in made
    assert "> kept\n" in made
    assert "> said again\n" in made
    assert made.count("said again") == 1
    assert "attempt 2 goes on" in made
    assert "> ~~voided~~\n" in document(rows, shows_void=True)


def test_a_message_that_was_not_said_in_pieces_is_shown() -> None:
    rows = [
        row(0, "turn.started", turnId="t"),
        row(1, "message.completed", message="all", finishReason="stop"),
    ]
    assert "> all\n" in document(rows)
