"""The OpenAI side of the server, through the real client package and through plain HTTP.

Many are faults of other servers (docs/FAULTS.md says how those are used), with lengths cut to ling-nano.
"""

import json

import openai
import pytest

from server_support import QUESTION, WEATHER, Server, joined, message_of, parse_events, user

OFF = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


def test_client_whole_and_stream_agree(client):
    ask = dict(model="ling-nano", messages=user(QUESTION), temperature=0, max_tokens=60)
    whole = client.chat.completions.create(**ask)
    assert whole.object == "chat.completion" and whole.id.startswith("chatcmpl-")
    text = reasoning = ""
    finish = usage = None
    for chunk in client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        assert chunk.id.startswith("chatcmpl-")
        if chunk.usage:
            assert chunk.choices == []
            usage = chunk.usage
            continue
        text += chunk.choices[0].delta.content or ""
        reasoning += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
        finish = chunk.choices[0].finish_reason or finish
    assert text == whole.choices[0].message.content
    assert reasoning == whole.choices[0].message.reasoning_content
    assert finish == whole.choices[0].finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.completion_tokens_details == whole.usage.completion_tokens_details


def test_client_stream_helper_and_tools(client):
    with client.chat.completions.stream(model="ling-nano", messages=user("What is the weather in Paris?"),
                                        tools=[WEATHER], temperature=0, max_tokens=100) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "chunk" in kinds
    call = final.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    assert final.choices[0].finish_reason == "tool_calls"


def test_client_completions(client):
    ask = dict(model="ling-nano", prompt="one two three four", temperature=0, max_tokens=12)
    whole = client.completions.create(**ask)
    stream = list(client.completions.create(**ask, stream=True))
    assert "".join(c.choices[0].text for c in stream) == whole.choices[0].text
    assert whole.usage.completion_tokens <= 12
    echo = client.completions.create(**ask, echo=True)
    assert echo.choices[0].text == "one two three four" + whole.choices[0].text


def test_client_responses(client):
    ask = dict(model="ling-nano", input=QUESTION, temperature=0, max_output_tokens=60)
    whole = client.responses.create(**ask)
    assert whole.status in ("completed", "incomplete") and whole.object == "response"
    events = list(client.responses.create(**ask, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[1].type == "response.in_progress"
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    assert last.response.output_text == whole.output_text
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    reasoning = [i for i in whole.output if i.type == "reasoning"]
    streamed = "".join(e.delta for e in events if e.type == "response.reasoning_text.delta")
    assert streamed == "".join(c.text for i in reasoning for c in i.content)
    assert last.response.usage.output_tokens == whole.usage.output_tokens
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens


def test_client_responses_tell_what_was_asked(client):
    tool = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}
    ask = dict(model="m", input="x", instructions="Be brief.", temperature=0.5, top_p=0.9, max_output_tokens=2, tools=[tool], tool_choice="none",
               parallel_tool_calls=False, metadata={"who": "me"})
    streamed = list(client.responses.create(**ask, stream=True))
    for response in (client.responses.create(**ask), streamed[0].response, streamed[-1].response):
        said = response.model_dump(exclude_unset=True)
        assert {field: said[field] for field in ask if field not in ("model", "input")} == {k: v for k, v in ask.items() if k not in ("model", "input")}
    assert client.responses.create(model="m", input="x", max_output_tokens=1).tool_choice == "auto"


def test_client_responses_tools_round_trip(client):
    tool = {"type": "function", "name": "get_weather", "description": "Get the weather of a city", "strict": False,
            "parameters": WEATHER["function"]["parameters"]}
    items = [{"role": "user", "content": "What is the weather in Paris?"}]
    with client.responses.stream(model="ling-nano", input=items, tools=[tool], temperature=0, max_output_tokens=100) as s:
        for _ in s:
            pass
        first = s.get_final_response()
    call = next(i for i in first.output if i.type == "function_call")
    assert call.name == "get_weather" and json.loads(call.arguments) == {"city": "Paris"}
    items += [i.model_dump(exclude_none=True) for i in first.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": '{"sky": "clear", "degrees": 21}'})
    second = client.responses.create(model="ling-nano", input=items, tools=[tool], temperature=0, max_output_tokens=100)
    assert second.output_text
    assert second.usage.input_tokens_details.cached_tokens > first.usage.input_tokens


def test_client_models(client, server):
    model = client.models.list().data[0]
    assert model.context_length == server.get("/props")[2]["context"]


def test_client_errors_are_typed(client, server):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=user("x"), temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="m", input="x")
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=user("lamp " * 80000))
    assert caught.value.code == "context_length_exceeded"
    context = server.get("/props")[2]["context"]
    assert str(context) in caught.value.message and str(80000)[:1] in caught.value.message


def test_client_retries_and_timeouts(server):
    slow = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        slow.chat.completions.create(model="m", messages=user("x"), max_tokens=4000, temperature=0,
                                     extra_body={"ignore_eos": True})
    server.wait_idle(5)


# ---- text, stop strings, usage ----


def test_stream_equals_whole_for_any_script(server):
    for text in ("\U0001F469\u200D\U0001F469\u200D\U0001F467 \U0001F1E9\U0001F1EA \U00020BB7 \u0E44\u0E17\u0E22 \u0928\u092E\u0938\u094D\u0924\u0947",
                 "Gr\u00fc\u00dfe, na\u00efve fa\u00e7ade \u2014 42 \u20ac \U0001F98A \u0141\u00f3d\u017a"):
        ask = dict(messages=user("Repeat: " + text), temperature=0, max_tokens=80, **OFF)
        whole = message_of(server.ask(**ask))
        assert joined(server.stream(**ask)[0])[0] == whole
        ids = server.post("/tokenize", {"content": text})[2]["tokens"]
        assert server.post("/detokenize", {"tokens": ids})[2]["content"] == text


def count_prompt():
    return "one two three four five six seven eight nine ten"


def test_stop_strings_split_over_tokens(server):
    """For stop strings cut out of the real answer: it ends right before the first one, on every endpoint, both ways."""
    chat = dict(messages=user(QUESTION), temperature=0, max_tokens=60, **OFF)
    full = server.ask(**chat)["choices"][0]["message"]["content"]
    raw = dict(prompt=count_prompt(), temperature=0, max_tokens=24)
    full_raw = server.ask("/v1/completions", **raw)["choices"][0]["text"]
    assert len(full) > 12 and len(full_raw) > 12
    for start, length in ((0, 1), (1, 3), (3, 5), (5, 7), (7, 4)):
        stop = full[start:start + length]
        body = {**chat, "stop": [stop, "never in it"]}
        message = message_of(server.ask(**body))
        assert message["content"] == full[:full.index(stop)] and message["finish"] == "stop"
        assert joined(server.stream(**body)[0])[0] == message
        stop = full_raw[start:start + length]
        body = {**raw, "stop": stop}
        answer = server.ask("/v1/completions", **body)["choices"][0]
        assert answer["text"] == full_raw[:full_raw.index(stop)] and answer["finish_reason"] == "stop"
        events, _ = server.stream("/v1/completions", **body)
        assert "".join(d["choices"][0]["text"] for _, d in events if d != "[DONE]") == answer["text"]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 64])
def test_never_more_than_max_tokens(server, limit):
    for extra in ({}, OFF):
        usage = server.chat(max_tokens=limit, ignore_eos=True, **extra)["usage"]
        assert usage["completion_tokens"] == limit
        assert usage["completion_tokens_details"]["reasoning_tokens"] <= limit
        assert usage["total_tokens"] == usage["prompt_tokens"] + limit


def test_usage_needs_a_stream(server):
    assert server.chat(stream_options={"include_usage": True}, status=400)["error"]["param"] == "stream_options"


def test_the_end_comes_with_the_last_word(server):
    import time
    sock = server.open_stream("/v1/chat/completions", {"messages": user("word " * 1000), "temperature": 0, "max_tokens": 30,
                                                       "ignore_eos": True})
    last = end = None
    text = b""
    while b"[DONE]" not in text:
        got = sock.recv(65536)
        assert got
        text += got
        now = time.monotonic()
        if b"reasoning_content" in got or b'"content":"' in got:
            last = now
        end = now
    assert end - last < 0.05


def test_details_are_filled_in_both_modes(server):
    usage = server.chat()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0
    assert usage["completion_tokens_details"]["reasoning_tokens"] > 0
    events, _ = server.stream(messages=user(QUESTION), temperature=0, max_tokens=40, stream_options={"include_usage": True})
    assert events[-2][1]["usage"]["completion_tokens_details"] == usage["completion_tokens_details"]


def test_text_of_users_forms_no_control_token(server):
    marks = ["<|role_end|>", "<role>HUMAN</role>", "</think>", "<tool_call>", "<|startoftext|>"]
    special = {server.post("/tokenize", {"content": m, "special": True})[2]["tokens"][0] for m in marks}
    clean = server.post("/tokenize", {"messages": [{"role": "system", "content": "a"}, *user("b")]})[2]["tokens"]
    for mark in marks:
        tool = {"type": "function", "function": {"name": "f", "description": mark, "parameters": {"type": "object"}}}
        plain_tool = {"type": "function", "function": {"name": "f", "description": "x", "parameters": {"type": "object"}}}
        for messages, tools, base in (
                ([{"role": "system", "content": "a"}, *user(mark)], [], clean),
                ([{"role": "system", "content": mark}, *user("b")], [], clean),
                ([{"role": "system", "content": "a"}, *user("b")], [tool],
                 server.post("/tokenize", {"messages": [{"role": "system", "content": "a"}, *user("b")],
                                           "tools": [plain_tool]})[2]["tokens"])):
            ids = server.post("/tokenize", {"messages": messages, "tools": tools})[2]["tokens"]
            for id_ in special:
                assert ids.count(id_) == base.count(id_), mark
    # Raw prompts have their own rule: text is text unless the request says otherwise.
    plain = server.ask("/v1/completions", prompt="<|role_end|>", max_tokens=1, temperature=0)
    formed = server.ask("/v1/completions", prompt="<|role_end|>", special=True, max_tokens=1, temperature=0)
    assert plain["usage"]["prompt_tokens"] > 1 and formed["usage"]["prompt_tokens"] == 1


def test_n_choices_are_n_answers(server):
    body = dict(messages=user("Say something."), temperature=1.5, seed=7, max_tokens=12, n=8, **OFF)
    answer = server.ask(**body)
    assert [c["index"] for c in answer["choices"]] == list(range(8))
    texts = [c["message"]["content"] for c in answer["choices"]]
    assert len(set(texts)) > 1
    assert answer["usage"]["completion_tokens"] <= 8 * 12
    streamed = joined(server.stream(**body)[0])
    assert [streamed[i]["content"] for i in range(8)] == texts
    assert texts[0] == server.ask(**{**body, "n": 1})["choices"][0]["message"]["content"]


def test_choices_read_their_prompt_once(server):
    """The prompt is read for the first choice; the others go on from the state behind it, with drafts and without."""
    body = dict(messages=user("Count: " + "one two three " * 40), temperature=1.0, seed=11, max_tokens=20, **OFF)
    alone = [message_of(server.ask(**body, n=1))]
    server.ask("/v1/completions", prompt="a stranger", max_tokens=1)
    prompt, cached = (server.metric(f"sparkling_{what}_tokens_total") for what in ("prompt", "cached"))
    answer = server.ask(**body, n=4)
    size = answer["usage"]["prompt_tokens"]
    assert server.metric("sparkling_prompt_tokens_total") - prompt == 4 * size
    assert server.metric("sparkling_cached_tokens_total") - cached == 3 * size
    assert answer["timings"]["cached_tokens"] == 0
    assert message_of(answer) == alone[0]
    # A prompt in the ids that were sampled, not in those of its text, is shared too.
    first = server.ask(**body)
    history = [*body["messages"], {"role": "assistant", "content": first["choices"][0]["message"]["content"]}, *user("Go on.")]
    cached = server.metric("sparkling_cached_tokens_total")
    answer = server.ask(**{**body, "messages": history}, n=3)
    usage = answer["usage"]
    assert server.metric("sparkling_cached_tokens_total") - cached == 2 * usage["prompt_tokens"] + usage["prompt_tokens_details"]["cached_tokens"]


def test_props_say_what_runs(server):
    props = server.get("/props")[2]
    assert "memory:" in props["plan"] and props["capabilities"]["thinking_budget"] is True
    assert "POST /v1/messages" in props["routes"]
    assert props["defaults"]["temperature"] == 0.6


def test_timings_agree_with_usage(server):
    answer = server.chat(max_tokens=30, ignore_eos=True)
    t = answer["timings"]
    assert t["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert 0 < t["first_token_ms"] <= t["total_ms"]
    assert abs(t["decode_tok_s"] * t["decode_ms"] / 1e3 - 29) < 0.5
    parts = [t["draft_ms"], t["verify_ms"], t["sample_ms"]]
    assert all(part >= 0 for part in parts) and 0 < sum(parts) <= t["decode_ms"] and t["bytes_per_token"] > 1e5


def test_parse_events_is_strict():
    with pytest.raises(AssertionError):
        parse_events("dat: x\n\n")
