"""The clients' own typed models, taken strictly, and their retries: what they accept by habit they must accept by their rules too."""

import functools
import threading
from typing import Any

import anthropic
import anthropic.types as claude
import openai
import openai.types as oai
import pytest
from openai.types import chat, responses
from pydantic import TypeAdapter

from server_support import LONG, QUESTION, WEATHER, Server, end_of_thinking, joined, message_of, user

PARAMETERS = WEATHER["function"]["parameters"]
OF_RESPONSES = {"type": "function", "name": "get_weather", "description": "Get the weather of a city", "parameters": PARAMETERS}
OF_MESSAGES = {"name": "get_weather", "description": "Get the weather of a city", "input_schema": PARAMETERS}


@pytest.fixture(scope="module")
def server():
    with Server("--quiet", "--queue", "2") as running:
        yield running


adapter = functools.cache(TypeAdapter)


class OldChunk(oai.Completion):
    """The package types a reason as always there, and its own server sends null until the last chunk."""

    choices: list[Any]


@pytest.mark.parametrize("question, limit", [(QUESTION, 60), (QUESTION, 3), ("What is the weather in Paris?", 60)])
def test_every_object_and_event_is_of_its_type(server, question, limit):
    def check(kind, data):
        adapter(kind).validate_python(data)

    def check_stream(kind, path, **body):
        for _, data in server.stream(path, **body)[0]:
            if data != "[DONE]":
                check(kind, data)

    greedy = {"temperature": 0, "max_tokens": limit}
    usage = {"stream_options": {"include_usage": True}}
    body = {"messages": user(question), "tools": [WEATHER], "logprobs": True, "top_logprobs": 2, **greedy}
    check(chat.ChatCompletion, server.ask(**body))
    check_stream(chat.ChatCompletionChunk, "/v1/chat/completions", **body, **usage)
    body = {"prompt": question, "logprobs": 2, **greedy}
    check(oai.Completion, server.ask("/v1/completions", **body))
    check_stream(OldChunk, "/v1/completions", **body, **usage)
    body = {"input": question, "tools": [OF_RESPONSES], "temperature": 0, "max_output_tokens": limit}
    check(responses.Response, server.ask("/v1/responses", **body))
    check_stream(responses.ResponseStreamEvent, "/v1/responses", **body)
    body = {"model": "m", "messages": user(question), "tools": [OF_MESSAGES], "thinking": {"type": "adaptive"}, **greedy}
    check(claude.Message, server.ask("/v1/messages", **body))
    check_stream(claude.RawMessageStreamEvent, "/v1/messages", **body)
    check(claude.MessageTokensCount, server.ask("/v1/messages/count_tokens", messages=user(question)))
    for model in server.get("/v1/models")[2]["data"]:
        check(oai.Model, model)
        check(claude.ModelInfo, model)
        assert server.get(f"/v1/models/{model['id']}")[2] == model
    status, _, error = server.get("/v1/models/another")
    assert status == 404 and "'another'" in error["error"]["message"] and error["error"]["code"] == "model_not_found"


def test_clients_try_again_when_the_queue_was_full(server):
    """429 with Retry-After, and one second later both have their answer."""
    held = [server.open_stream("/v1/chat/completions", LONG)]
    server.wait_busy(1, 0)
    for waiting in (1, 2):
        held.append(server.open_stream("/v1/chat/completions", LONG))
        server.wait_busy(1, waiting)
    asked, found = server.metric('sparkling_requests_total{endpoint="chat",status="429"}'), []

    def ask_openai():
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=4)
        found.append(client.chat.completions.create(model="m", messages=user("x"), max_tokens=2).choices[0].finish_reason)

    def ask_anthropic():
        client = anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=4)
        found.append(client.messages.create(model="m", messages=user("x"), max_tokens=2).stop_reason)

    threads = [threading.Thread(target=ask) for ask in (ask_openai, ask_anthropic)]
    for thread in threads:
        thread.start()
    while server.metric('sparkling_requests_total{endpoint="chat",status="429"}') == asked:
        pass
    for sock in held:
        sock.close()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2 and set(found) <= {"stop", "length", "end_turn", "max_tokens"}


@pytest.mark.parametrize("limit", [1, 4])
def test_an_answer_cut_while_thinking_has_one_form(server, limit):
    """Whole and streamed, of every API: reasoning and nothing behind it."""
    ban = {"temperature": 0, "logit_bias": {str(end_of_thinking(server)): -1000}}
    body = {"messages": user(QUESTION), "max_tokens": limit, **ban}
    message = message_of(server.ask(**body))
    assert message["reasoning"] and message["content"] == "" and joined(server.stream(**body)[0])[0] == message
    body = {"model": "m", "messages": user(QUESTION), "max_tokens": limit, "thinking": {"type": "enabled"}, **ban}
    kinds = [block["type"] for block in server.ask("/v1/messages", **body)["content"]]
    events = server.stream("/v1/messages", **body)[0]
    assert kinds == [data["content_block"]["type"] for _, data in events if data["type"] == "content_block_start"] == ["thinking"]
    body = {"input": QUESTION, "max_output_tokens": limit, **ban}
    whole, streamed = server.ask("/v1/responses", **body), server.stream("/v1/responses", **body)[0][-1][1]["response"]
    for answer in (whole, streamed):
        assert [(item["type"], item["status"]) for item in answer["output"]] == [("reasoning", "incomplete")]
        assert answer["status"] == "incomplete"
