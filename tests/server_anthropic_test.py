"""The Anthropic side of the server, through the real client package and through plain HTTP."""

import json

import anthropic
import pytest

from server_support import QUESTION, Server, user


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120)


WEATHER = {"name": "get_weather", "description": "Get the weather of a city",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string", "description": "city"}},
                            "required": ["city"]}}


def greedy(messages, **more):
    """Sampling goes into the body beside the typed arguments, which a client may not have."""
    return dict(model="ling-nano", max_tokens=100, messages=messages, extra_body={"temperature": 0}, **more)


def test_client_whole_and_stream_agree(client):
    whole = client.messages.create(**greedy(user(QUESTION)))
    assert [b.type for b in whole.content] == ["text"] and whole.role == "assistant"
    with client.messages.stream(**greedy(user(QUESTION))) as stream:
        events = list(stream)
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    kinds = [e.type for e in events]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"


def test_client_thinking(client):
    ask = greedy(user(QUESTION), thinking={"type": "enabled", "budget_tokens": 1024})
    whole = client.messages.create(**ask)
    assert [b.type for b in whole.content] == ["thinking", "text"]
    with client.messages.stream(**ask) as stream:
        deltas = {e.delta.type for e in stream if e.type == "content_block_delta"}
        final = stream.get_final_message()
    assert {"thinking_delta", "signature_delta", "text_delta"} <= deltas
    assert [b.model_dump() for b in final.content][0]["thinking"] == whole.content[0].thinking
    assert final.content[1].text == whole.content[1].text
    history = [*user(QUESTION), {"role": "assistant", "content": [b.model_dump() for b in final.content]}, *user("Again.")]
    second = client.messages.create(**greedy(history, thinking={"type": "enabled", "budget_tokens": 1024}))
    assert second.usage.cache_read_input_tokens > 0


def test_client_budget_to_the_token(client, server):
    end = server.post("/tokenize", {"content": "</think>", "special": True})[2]["tokens"][0]
    answer = client.messages.create(model="m", max_tokens=60, messages=user(QUESTION), thinking={"type": "enabled", "budget_tokens": 9},
                                    extra_body={"temperature": 0, "logit_bias": {str(end): -1000}})
    ids = server.post("/tokenize", {"content": answer.content[0].thinking})[2]["tokens"]
    assert 1 <= len(ids) <= 9 and answer.content[1].text
    assert answer.usage.output_tokens_details.thinking_tokens == 9 < answer.usage.output_tokens


def test_client_tools_round_trip(client):
    first = client.messages.create(**greedy(user("What is the weather in Paris?"), tools=[WEATHER]))
    assert first.stop_reason == "tool_use"
    use = next(b for b in first.content if b.type == "tool_use")
    assert (use.name, use.input) == ("get_weather", {"city": "Paris"}) and use.id.startswith("toolu_")
    with client.messages.stream(**greedy(user("What is the weather in Paris?"), tools=[WEATHER])) as stream:
        final = stream.get_final_message()
    assert [(b.type, getattr(b, "input", None)) for b in final.content] == \
           [(b.type, getattr(b, "input", None)) for b in first.content]
    use = next(b for b in final.content if b.type == "tool_use")
    history = [*user("What is the weather in Paris?"), {"role": "assistant", "content": [b.model_dump() for b in final.content]},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                             "content": [{"type": "text", "text": '{"sky": "clear", "degrees": 21}'}]}]}]
    second = client.messages.create(**greedy(history, tools=[WEATHER]))
    assert second.content[0].type == "text" and second.stop_reason in ("end_turn", "max_tokens")
    assert second.usage.cache_read_input_tokens > 0


def test_client_stop_sequences(client):
    whole = client.messages.create(**greedy(user(QUESTION))).content[0].text
    stop = whole[3:6]
    cut = client.messages.create(**greedy(user(QUESTION), stop_sequences=[stop, "never"]))
    assert cut.content[0].text == whole[:whole.index(stop)]
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop)


def test_client_count_tokens(client):
    ask = dict(model="m", messages=user(QUESTION), tools=[WEATHER], system="Be brief.")
    counted = client.messages.count_tokens(**ask).input_tokens
    usage = client.messages.create(**ask, max_tokens=1).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_client_errors_are_typed(client):
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model="m", max_tokens=0, messages=user("x"))
    assert caught.value.body["type"] == "error" and "max_tokens" in caught.value.body["error"]["message"]
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model="m", max_tokens=5, messages=user("lamp " * 80000))
    assert "context_length_exceeded" in str(caught.value)
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("nothing")


@pytest.mark.parametrize("change, field", [
    ({"max_tokens": None}, "max_tokens"), ({"messages": []}, "messages"), ({"messages": [{"role": "bot", "content": "x"}]}, "messages[0].role"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"), ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"name": "x", "input_schema": {}, "strict": True}]}, "tools[0].strict"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
    ({"messages": [*user("x"), {"role": "assistant", "content": "Once"}]}, "messages"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format"),
    ({"stop_sequences": ["a"] * 17}, "stop_sequences"), ({"temperature": 200}, "temperature"), ({"mcp_servers": [{}]}, "mcp_servers"),
    ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
])
def test_refusals_name_the_field(server, change, field):
    status, _, answer = server.post("/v1/messages", {"model": "m", "max_tokens": 5, "messages": user("x"), **change})
    assert status == 400 and answer["type"] == "error", answer
    assert answer["error"]["type"] == "invalid_request_error" and field in answer["error"]["message"]


@pytest.mark.parametrize("change", [
    {"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}, {"metadata": {"user_id": "u"}},
    {"thinking": {"type": "disabled"}}, {"thinking": {"type": "adaptive"}}, {"output_config": {"effort": "low"}},
    {"tool_choice": {"type": "none"}}, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    {"service_tier": "auto"}, {"context_management": {"edits": []}}])
def test_what_clients_send_is_taken(server, change):
    assert server.post("/v1/messages?beta=true", {"model": "m", "max_tokens": 3, "messages": user("x"), **change})[0] == 200


def test_events_in_their_grammar(server):
    events, _ = server.stream("/v1/messages", model="m", max_tokens=60, temperature=0, messages=user("What is the weather in Paris?"),
                              tools=[WEATHER], thinking={"type": "enabled", "budget_tokens": 500})
    names = [name for name, _ in events]
    assert names == [data["type"] for _, data in events]
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"]
    open_block, parts = None, {}
    for name, data in events[1:-2]:
        if name == "content_block_start":
            assert open_block is None and data["index"] == len(parts)
            open_block = data["index"]
            parts[open_block] = ""
        elif name == "content_block_delta":
            assert data["index"] == open_block
            parts[open_block] += data["delta"].get("partial_json", "")
        else:
            assert name == "content_block_stop" and data["index"] == open_block
            open_block = None
    assert open_block is None
    for text in parts.values():
        if text:
            json.loads(text)
    assert events[-2][1]["delta"]["stop_reason"] in ("tool_use", "max_tokens", "end_turn")
