"""Texts that a small model would never write, forced token by token: characters in pieces, bad bytes, stop strings in any script.

And what the answers are made into on every endpoint: deltas, usage, calls.
"""

import json

import pytest

from server_support import WEATHER, Server, forcing, joined, message_of, user, without_ids

OFF = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module", params=["0", "4"])
def server(request):
    with Server("--quiet", "--draft", request.param) as running:
        yield running


def ids_of(server, text, special=False):
    return server.post("/tokenize", {"content": text, "special": special})[2]["tokens"]


def texts(server, body):
    """(what it is, text, finish reason) of one answer on every endpoint that takes these fields, whole and streamed."""
    chat = {"messages": user("x"), **OFF, **body}
    yield "chat", *(lambda m: (m["content"], m["finish"]))(message_of(server.ask(**chat)))
    yield "chat stream", *(lambda m: (m["content"], m["finish"]))(joined(server.stream(**chat)[0])[0])
    choice = server.ask("/v1/completions", prompt="x", **body)["choices"][0]
    yield "completions", choice["text"], choice["finish_reason"]
    events = [d for _, d in server.stream("/v1/completions", prompt="x", **body)[0] if d != "[DONE]"]
    yield "completions stream", "".join(d["choices"][0]["text"] for d in events), events[-1]["choices"][0]["finish_reason"]
    messages = {"model": "m", "messages": user("x"), **body}
    if "stop" in messages:
        messages["stop_sequences"] = messages.pop("stop")
    reasons = {"max_tokens": "length", "stop_sequence": "stop"}
    answer = server.ask("/v1/messages", **messages)
    yield "messages", "".join(b["text"] for b in answer["content"]), reasons[answer["stop_reason"]]
    events = [d for _, d in server.stream("/v1/messages", **messages)[0]]
    text = "".join(d["delta"].get("text", "") for d in events if d["type"] == "content_block_delta")
    yield "messages stream", text, reasons[events[-2]["delta"]["stop_reason"]]


CHARACTERS = ["\U0001F469\u200D", "\U0001F98A", "\U0001F1E9", "\U00020BB7", "\u0e17", "\u0e44", "\u0928", "\u4f60", "\u20ac", "\u0142"]


def test_characters_of_several_tokens(server):
    """Each token alone would be replacement marks."""
    for character in CHARACTERS:
        ids = ids_of(server, character)
        assert len(ids) > 1, character
        for where, text, finish in texts(server, forcing(ids)):
            assert (text, finish) == (character, "length"), (where, character)


def test_lone_bytes_become_replacement_marks(server):
    """A whole character, a lead byte alone, text, a lead byte at the end: never an error, and the count stays right."""
    mark, four, three = ids_of(server, "\u2705"), ids_of(server, "\U00020BB7")[0], ids_of(server, "\u0e17")[0]
    for ids, expected in (([*mark, four, *ids_of(server, "a"), three], "\u2705\ufffda\ufffd"), ([mark[2], four], "\ufffd\ufffd"),
                          ([mark[0], mark[1]], "\ufffd")):
        for where, text, finish in texts(server, forcing(ids)):
            assert (text, finish) == (expected, "length"), where
        assert server.chat("x", **forcing(ids), **OFF)["usage"]["completion_tokens"] == len(ids)


def test_stop_strings_of_any_script_on_every_endpoint(server):
    """It ends right before the string, and nothing of the string is sent, wherever its tokens are cut."""
    full = "x\U0001F98A\u4f60\n."
    ids = [i for part in ("x", "\U0001F98A", "\u4f60", "\n", ".") for i in ids_of(server, part)]
    assert server.post("/detokenize", {"tokens": ids})[2]["content"] == full
    for stop in ("\U0001F98A", "x", "x\U0001F98A\u4f60", "\u4f60", "\n", "\u4f60\n.", ".", full):
        body = {**forcing(ids), "stop": [f"never{i}" for i in range(15)] + [stop]}
        for where, text, finish in texts(server, body):
            assert (text, finish) == (full[:full.index(stop)], "stop"), (where, stop)
    for stop in ("\U0001F98Az", "\n.!", "\ufffd"):  # begun, never finished: all of it comes
        for where, text, finish in texts(server, {**forcing(ids), "stop": [stop]}):
            assert (text, finish) == (full, "length"), (where, stop)


def test_a_stop_string_of_forty_characters(server):
    raw = dict(prompt="one two three four five six seven eight nine ten one two three four", temperature=0, max_tokens=60, ignore_eos=True)
    full = server.ask("/v1/completions", **raw)["choices"][0]["text"]
    stop = full[11:51]
    assert len(stop) == 40
    body = {**raw, "stop": stop}
    assert server.ask("/v1/completions", **body)["choices"][0]["text"] == full[:full.index(stop)]
    events = [d for _, d in server.stream("/v1/completions", **body)[0] if d != "[DONE]"]
    assert "".join(d["choices"][0]["text"] for d in events) == full[:full.index(stop)]


def test_a_call_that_opens_before_thinking_closes(server):
    """Reasoning up to the call, one call, no content; and what was streamed as reasoning stays that."""
    ids = [*ids_of(server, "look"), *ids_of(server, "<tool_call>", True), *ids_of(server, "get_weather"), ids_of(server, "\n<tool_call>", True)[0],
           *ids_of(server, "</tool_call>", True)]
    body = dict(messages=user("What is the weather in Paris?"), tools=[WEATHER], **{**forcing(ids), "ignore_eos": False})
    whole = message_of(server.ask(**body, parallel_tool_calls=False))
    assert whole["reasoning"] == "look" and whole["content"] == "" and whole["finish"] == "tool_calls"
    assert [(c["name"], json.loads(c["arguments"])) for c in whole["calls"]] == [("get_weather", {})]
    streamed = joined(server.stream(**body, parallel_tool_calls=False)[0])[0]
    assert without_ids(streamed) == without_ids(whole)


def test_no_piece_of_markup_in_fifty_streams(server):
    pieces = ("<|", "role_end", "<think", "</think", "think>", "<tool_call", "tool_call>", "<arg_", "</arg", "arg_value")
    for seed in range(50):
        events, _ = server.stream(messages=user("What is the weather in Paris?"), tools=[WEATHER], max_tokens=30, seed=seed,
                                  temperature=1.2, stop=[" the", "\n", "Calls"])
        sum_ = joined(events)[0]
        for text in (sum_["content"], sum_["reasoning"]):
            assert not [piece for piece in pieces if piece in text], (seed, text)
        for call in sum_["calls"]:
            json.loads(call["arguments"])


def test_usage_comes_once_and_is_the_same_in_every_mode(server):
    for path, ask in (("/v1/completions", {"prompt": "one two", "max_tokens": 6}), ("/v1/chat/completions", {"messages": user("Hi"), "max_tokens": 6}),
                      ("/v1/chat/completions", {"messages": user("What is the weather in Paris?"), "tools": [WEATHER], "max_tokens": 80})):
        ask["temperature"] = 0
        whole = server.ask(path, **ask)["usage"]
        assert whole["total_tokens"] == whole["prompt_tokens"] + whole["completion_tokens"]
        for include in (True, False, None):
            more = {} if include is None else {"stream_options": {"include_usage": include}}
            events, _ = server.stream(path, **ask, **more)
            assert events[-1][1] == "[DONE]"
            found = [d for _, d in events[:-1] if d.get("usage")]
            assert len(found) == (1 if include else 0)
            if include:
                assert found[0] is events[-2][1] and found[0]["choices"] == []
                assert {**found[0]["usage"], "prompt_tokens_details": None} == {**whole, "prompt_tokens_details": None}
    status, headers, answer = server.post("/v1/chat/completions", {"messages": [], "stream": True, "stream_options": {"include_usage": True}})
    assert status == 400 and headers["Content-Type"] == "application/json" and "usage" not in answer


def test_cached_tokens_are_right_in_both_modes(server):
    first = server.chat("What is 2 + 3?", max_tokens=60, **OFF)
    assert first["choices"][0]["finish_reason"] == "stop"
    history = [*user("What is 2 + 3?"), {"role": "assistant", "content": first["choices"][0]["message"]["content"]}]
    held = first["usage"]["total_tokens"]
    second = server.chat([*history, *user("And 3 + 4?")], max_tokens=60, **OFF)
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == held
    server.chat("What is 2 + 3?", max_tokens=60, **OFF)  # the session holds the first turn again
    events, _ = server.stream(messages=[*history, *user("And 3 + 4?")], temperature=0, max_tokens=60, stream_options={"include_usage": True}, **OFF)
    usage = events[-2][1]["usage"]
    assert usage == second["usage"] and usage["completion_tokens_details"]["reasoning_tokens"] == 0


def test_which_tokens_a_penalty_counts(server):
    """The prompt for the repetition penalty, only the answer for the other two (docs/API.md)."""
    word = ids_of(server, "a")
    other = ids_of(server, "b")
    bias = {str(word[0]): 1000, str(other[0]): 990}
    for penalty, first in (({"presence_penalty": 100}, "a"), ({"frequency_penalty": 100}, "a"), ({"repetition_penalty": 2}, "b")):
        text = server.ask("/v1/completions", prompt=word, temperature=0, max_tokens=2, logit_bias=bias, **penalty)["choices"][0]["text"]
        assert text == ("ab" if first == "a" else "ba"), (penalty, text)
