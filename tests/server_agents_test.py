"""Requests of the shapes that common coding agents send, as far as their public sources show (docs/AGENTS.md)."""

import json

import pytest

from server_support import WEATHER, Server, joined, user

SCHEMA = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": False,
          "properties": {"command": {"type": "string", "description": "what to run"}, "timeout": {"type": "number"},
                         "paths": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                         "mode": {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]}}, "required": ["command"]}


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


def test_claude_code(server):
    tools = [{"name": name, "description": f"{name} does things.\n\n- one\n- two", "input_schema": SCHEMA} for name in ("Bash", "Read", "Edit")]
    tools[-1]["cache_control"] = {"type": "ephemeral"}
    body = {"model": "claude-ling", "max_tokens": 32000, "temperature": 1, "stream": True,
            "metadata": {"user_id": "user_0_account__session_1"},
            "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
                       {"type": "text", "text": "Environment: Linux"}],
            "thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "tools": tools,
            "messages": [{"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>be kind</system-reminder>"},
                {"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]}], "stop_sequences": ["7", "."]}
    events, _ = server.stream("/v1/messages?beta=true", **body)
    assert events[0][0] == "message_start" and events[-1][0] == "message_stop"
    history = [*body["messages"],
               {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "sparkling"},
                                                 {"type": "tool_use", "id": "toolu_a", "name": "Bash", "input": {"command": "ls"}},
                                                 {"type": "tool_use", "id": "toolu_b", "name": "Read", "input": {"command": "x"}}]},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_a", "content": "a\nb", "is_error": False},
                                            {"type": "tool_result", "tool_use_id": "toolu_b", "is_error": True,
                                             "content": [{"type": "text", "text": "no such file"}]},
                                            {"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}}]}]
    status, _, answer = server.post("/v1/messages?beta=true", {**body, "stream": False, "messages": history, "max_tokens": 8})
    assert status == 200 and answer["content"]
    status, _, answer = server.post("/v1/messages/count_tokens?beta=true", {"model": "m", "messages": history, "tools": tools})
    assert status == 200 and answer["input_tokens"] > 100
    small = {"model": "m", "max_tokens": 64, "system": "Write a title.", "messages": user("fix the tests"), "temperature": 0}
    answer = server.post("/v1/messages", small)[2]
    assert answer["content"][0]["type"] == "text" and answer["content"][0]["text"]  # not eaten by thinking


def test_codex(server):
    tools = [{"type": "function", "name": "shell", "description": "Runs a command", "strict": False, "parameters": SCHEMA},
             {"type": "function", "name": "update_plan", "description": "Plans", "strict": False,
              "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}]
    items = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list the files"}]}]
    body = {"model": "ling", "instructions": "You are an agent.", "input": items, "tools": tools, "tool_choice": "auto",
            "parallel_tool_calls": False, "reasoning": {"effort": "low", "summary": "auto"}, "store": False, "stream": True,
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0198-session", "text": {"verbosity": "medium"},
            "max_output_tokens": 60, "temperature": 0}
    events, _ = server.stream("/v1/responses", **body)
    done = events[-1][1]
    assert done["type"] in ("response.completed", "response.incomplete") and done["response"]["usage"]["input_tokens"] > 0
    assert [d["item"] for _, d in events if d["type"] == "response.output_item.done"] == done["response"]["output"]
    items += [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": None},
              {"type": "function_call", "name": "shell", "arguments": json.dumps({"command": "ls"}), "call_id": "call_1"},
              {"type": "function_call_output", "call_id": "call_1", "output": "a\nb"}]
    events, _ = server.stream("/v1/responses", **{**body, "input": items})
    assert events[-1][1]["type"] in ("response.completed", "response.incomplete")
    refused = ({"type": "image_generation"}, {"type": "tool_search"}, {"type": "local_shell"})
    for tool in (*refused, {"type": "web_search"}, {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}):
        status, _, answer = server.post("/v1/responses", {**body, "stream": False, "tools": [*tools, tool]})
        assert status == 400 and answer["error"]["param"] == "tools[2].type"


def test_codex_with_an_mcp_server(server):
    """It groups the functions of each server; the model sees one list, and the call goes back in its two parts."""
    inner = {"type": "function", "name": "weather", "description": "Get the weather of a city", "strict": False, "parameters": WEATHER["function"]["parameters"]}
    body = {"input": [{"role": "user", "content": "What is the weather in Paris?"}], "temperature": 0, "max_output_tokens": 80,
            "tools": [{"type": "namespace", "name": "get_", "description": "Tools of get", "tools": [inner]}]}  # the name that ling-nano knows
    whole, events = server.ask("/v1/responses", **body), server.stream("/v1/responses", **body)[0]
    added = next(d["item"] for _, d in events if d["type"] == "response.output_item.added" and d["item"]["type"] == "function_call")
    for call in (whole["output"][-1], events[-1][1]["response"]["output"][-1], events[-2][1]["item"]):
        assert (call["type"], call["namespace"], call["name"], call["arguments"]) == ("function_call", "get_", "weather", '{"city": "Paris"}')
    assert (added["namespace"], added["name"]) == ("get_", "weather")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": '{"sky": "clear", "degrees": 21}'}
    answer = server.ask("/v1/responses", **{**body, "input": [*body["input"], *events[-1][1]["response"]["output"], result]})
    held = events[-1][1]["response"]["usage"]["total_tokens"]
    assert answer["usage"]["input_tokens_details"]["cached_tokens"] == held  # the same words again, from the live session
    for change, field in (({"name": ""}, "tools[0].name"), ({"tools": None}, "tools[0].tools"),
                          ({"tools": [{"type": "custom", "name": "x"}]}, "tools[0].tools[0].type")):
        tools = [{**body["tools"][0], **change}]
        assert server.ask("/v1/responses", 400, **{**body, "tools": tools})["error"]["param"] == field


def test_opencode_and_cline(server):
    tools = [{"type": "function", "function": {"name": "bash", "description": "Runs", "parameters": SCHEMA}}]
    history = [{"role": "system", "content": "You are an agent."},
               {"role": "user", "content": [{"type": "text", "text": "list the files"}]},
               {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
                   {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": "ls"})}}]},
               {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "a\nb"}]}]
    for more in ({"tool_choice": "auto", "max_tokens": 32000, "reasoning_effort": "low", "stop": ["7", "e"]},
                 {"temperature": 0, "max_completion_tokens": 20}, {"max_tokens": 12, "reasoning_effort": "none", "top_p": 1}):
        events, _ = server.stream(model="ling", messages=history, tools=tools, stream_options={"include_usage": True}, **more)
        assert joined(events)[0]["finish"] in ("stop", "length", "tool_calls")
        assert events[-2][1]["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0


def test_open_webui(server):
    models = server.get("/v1/models")[2]
    assert models["data"][0]["id"]
    body = {"model": models["data"][0]["id"], "messages": user("hello"), "temperature": 0.8, "top_p": 0.9, "frequency_penalty": 0,
            "max_tokens": 10, "seed": 42, "stop": ["zzz"], "logit_bias": {}, "user": "me", "chat_id": "c", "session_id": "s"}
    assert joined(server.stream(**body)[0])[0]["finish"]
    assert server.post("/v1/chat/completions", {**body, "stream": False})[0] == 200
