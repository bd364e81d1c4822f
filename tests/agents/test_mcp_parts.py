"""The parts of McpTools: names, policies, configurations and results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mcp.types as protocol
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhin_host.agents.mcp import McpToolFailed, McpTools
from zhin_host.agents.mcp.names import name_of, prefixes_of, split_name
from zhin_host.agents.mcp.policies import Policies
from zhin_host.agents.mcp.results import RESULT_BYTES_MAX, value_of
from zhin_host.agents.mcp.servers import Command, Endpoint, read_file, servers_of

COMMAND = {"command": "tool-server"}


# -- names ---------------------------------------------------------------------------------------------------------


def test_a_name_that_fits_is_the_server_s_and_the_tool_s() -> None:
    assert name_of("github", "create_issue") == "github__create_issue"
    assert split_name("github__create__issue") == ("github", "create__issue")


@given(server=st.text(min_size=1).filter(lambda text: re.search("[a-zA-Z0-9]", text[:24])), tool=st.text())
def test_every_name_is_one_that_models_take_and_names_its_server(server: str, tool: str) -> None:
    name = name_of(server, tool)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
    assert split_name(name)[0] in prefixes_of([server])


@given(
    tools=st.lists(st.text(alphabet="ab_.- é", max_size=80), min_size=2, max_size=2, unique=True),
)
def test_two_tools_of_a_server_never_have_one_name(tools: list[str]) -> None:
    assert name_of("it", tools[0]) != name_of("it", tools[1])


def test_servers_whose_tools_would_be_called_alike_are_refused() -> None:
    with pytest.raises(ValueError, match="rename one"):
        McpTools({"my server": COMMAND, "my-server": COMMAND})


@pytest.mark.parametrize("name", ["", "__", "-", "…"])
def test_a_server_needs_a_name_with_a_letter(name: str) -> None:
    with pytest.raises(ValueError, match="letter or a digit"):
        McpTools({name: COMMAND})


@pytest.mark.parametrize("name", ["greet", "other__greet", "it__", "__greet"])
def test_a_name_of_no_server_here_is_no_tool(name: str) -> None:
    with pytest.raises(KeyError):
        McpTools({"it": COMMAND}).tool(name)


def test_a_tool_is_there_by_its_name_before_its_server_was_asked() -> None:
    tool = McpTools({"it": COMMAND}, approval={"it.write": "once"}, repeatable={"it.*": True}).tool(
        "it__write"
    )
    assert (tool.name, tool.approval, tool.is_repeatable) == ("it__write", "once", True)
    assert tool.schema == {"type": "object"}


# -- policies ------------------------------------------------------------------------------------------------------


def test_the_first_pattern_that_fits_counts() -> None:
    policies = Policies({"a.delete_*": "always", "a.*": "never", "*": "once"}, {})
    assert [policies.approval(*name) for name in (("a", "delete_x"), ("a", "get"), ("b", "delete_x"))] == [
        "always",
        "never",
        "once",
    ]


def test_a_pattern_minds_case_and_takes_dots() -> None:
    policies = Policies({"a.Get*": "never", "b.*": "never"}, {})
    assert policies.approval("a", "get") == "always"
    assert policies.approval("b", "x.y") == "never"


def test_a_policy_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="sometimes"):
        McpTools({"it": COMMAND}, approval={"*": "sometimes"})  # type: ignore[dict-item]


def test_a_policy_may_be_a_function_of_the_arguments() -> None:
    def is_large(amount: int) -> bool:
        return amount > 100

    assert McpTools({"it": COMMAND}, approval={"*": is_large}).tool("it__pay").approval is is_large


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        (None, False),
        (protocol.ToolAnnotations(), False),
        (protocol.ToolAnnotations(read_only_hint=True), True),
        (protocol.ToolAnnotations(idempotent_hint=True), True),
        (protocol.ToolAnnotations(read_only_hint=False, idempotent_hint=False), False),
    ],
    ids=["none", "empty", "reads", "idempotent", "neither"],
)
def test_a_tool_may_run_again_as_its_server_says_unless_a_pattern_says_otherwise(
    hints: protocol.ToolAnnotations | None, *, expected: bool
) -> None:
    assert Policies({}, {}).is_repeatable("a", "b", hints) is expected
    assert Policies({}, {"a.*": not expected}).is_repeatable("a", "b", hints) is not expected


# -- configurations ------------------------------------------------------------------------------------------------


def test_servers_are_commands_or_urls_and_keys_of_other_programs_are_passed_over() -> None:
    found = servers_of(
        {
            "files": {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}, "alwaysAllow": ["write"]},
            "web": {"type": "http", "url": "https://mcp.example/mcp", "headers": {"Authorization": "x"}},
            "off": {"command": "npx", "disabled": True},
        }
    )
    assert found == {
        "files": Command(command="npx", args=("-y", "x"), env={"A": "b"}),
        "web": Endpoint(url="https://mcp.example/mcp", headers={"Authorization": "x"}),
    }


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({}, "either a command or a url"),
        ({"command": "x", "url": "https://x.example"}, "either a command or a url"),
        ({"command": ""}, "command: String should have at least 1 character"),
        ({"command": "x", "args": "y"}, "args: "),
        ({"command": "x", "env": {"KEY": 5}}, "env.KEY: "),
        ({"url": "ftp://x.example"}, "url: URL scheme"),
        ({"url": "https://x.example", "type": "sse"}, "only streamable HTTP"),
        ("npx", "an object with a command or a url"),
    ],
)
def test_what_is_no_server_is_named_with_what_is_wrong(row: Any, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as caught:
        McpTools({"mine": row})
    assert "'mine'" in str(caught.value)


def test_no_error_repeats_a_secret() -> None:
    with pytest.raises(ValueError, match="headers") as caught:
        McpTools({"mine": {"url": "https://x.example", "headers": {"Authorization": ["s3cret"]}}})
    assert "s3cret" not in str(caught.value)


def file_of(folder: Path, content: object) -> Path:
    path = folder / "mcp.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_file_has_servers_with_variables_of_the_environment_and_our_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TEST_TOKEN", "t")
    server = {
        "url": "https://${MCP_TEST_HOST:-x.example}/mcp",
        "headers": {"Authorization": "Bearer ${MCP_TEST_TOKEN}"},
    }
    ours = {"approval": {"web.*": "never"}, "repeatable": {"*": True}, "callTimeoutS": 5, "openTimeoutS": 6}
    path = file_of(tmp_path, {"mcpServers": {"web": server}, "zhin": ours})
    found, _ = read_file(path)
    assert found == {"web": {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer t"}}}
    tool = McpTools.from_file(path).tool("web__x")
    assert (tool.approval, tool.is_repeatable) == ("never", True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is no JSON"),
        ([], 'has no object "mcpServers"'),
        ({"servers": {}}, 'has no object "mcpServers"'),
        ({"mcpServers": {}, "zhin": 1}, 'a "zhin" that is none'),
        ({"mcpServers": {}, "zhin": {"approvals": {}}}, '"zhin" has no approvals'),
        ({"mcpServers": {"a": {"command": "${NO_SUCH_VARIABLE}"}}}, "a needs the variable NO_SUCH_VARIABLE"),
    ],
)
def test_a_file_that_is_none_is_named_with_what_is_wrong(tmp_path: Path, content: object, says: str) -> None:
    path = file_of(tmp_path, content)
    with pytest.raises(ValueError, match=re.escape(says)) as caught:
        McpTools.from_file(path)
    assert str(path) in str(caught.value)


# -- results -------------------------------------------------------------------------------------------------------


def result(*texts: str, **more: Any) -> protocol.CallToolResult:
    return protocol.CallToolResult(content=[protocol.TextContent(text=text) for text in texts], **more)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (result(), ""),
        (result("a", "b"), "a\nb"),
        (result("a", structured_content={"result": "a"}), "a"),
        (result('{"n": 1}', structured_content={"n": 1}), {"n": 1}),
        (result("3", structured_content={"result": 3}), {"result": 3}),
        (result("a", "2", structured_content={"result": ["a", 2]}), {"result": ["a", 2]}),
        (result(structured_content={"result": []}), {"result": []}),
        (result(structured_content={"n": 1}), {"n": 1}),
        (result("one", structured_content={"n": 1}), {"text": "one", "structuredContent": {"n": 1}}),
        (result("2", structured_content={"n": 1}), {"text": "2", "structuredContent": {"n": 1}}),
    ],
)
def test_a_result_is_not_said_twice(given: protocol.CallToolResult, expected: object) -> None:
    assert value_of(given) == expected


def test_blobs_sounds_and_links_are_described() -> None:
    blob = protocol.BlobResourceContents(uri="file:///b", blob="AAAA")
    given = protocol.CallToolResult(
        content=[
            protocol.EmbeddedResource(resource=blob),
            protocol.AudioContent(data="AAA=", mime_type="audio/wav"),
            protocol.ResourceLink(uri="file:///l", name="the list"),
        ]
    )
    assert value_of(given) == (
        "[resource file:///b, of no type, 3 bytes, left out]\n"
        "[audio, audio/wav, 2 bytes, left out]\n"
        "[resource the list: file:///l]"
    )


def test_structured_content_that_is_too_large_is_described() -> None:
    large = {"rows": ["x" * 1000] * 300}
    assert value_of(result("many", structured_content=large)) == (
        f"many\n[structured content of {len(json.dumps(large))} bytes, left out]"
    )
    assert value_of(result(json.dumps(large), structured_content=large)).endswith("bytes, left out]")


def test_a_text_is_cut_between_characters() -> None:
    kept, note = value_of(result("a" + "é" * RESULT_BYTES_MAX)).split("\n")
    assert len(kept.encode()) == RESULT_BYTES_MAX - 1
    assert note == f"[cut: the first {RESULT_BYTES_MAX} of {2 * RESULT_BYTES_MAX + 1} bytes]"


def test_a_failure_is_raised_with_its_text() -> None:
    with pytest.raises(McpToolFailed, match="no paper"):
        value_of(result("no paper", is_error=True))
    with pytest.raises(McpToolFailed, match="did not say why"):
        value_of(result(is_error=True))
