"""Writes the tables of docs/API.md: options from `serve --help`, routes from a running server, fields from the table below.

    tools/api_doc.py            rewrites the tables between the markers of docs/API.md
    tools/api_doc.py --check    exit 1 when the file is not what would be written

Every row of FIELDS holds a value that must be refused with the field's name; tests/server_docs_test.py sends each of them to
a real server, so the table cannot say what the server does not do.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "API.md"

CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
ALL = (CHAT, TEXT, RESPONSES, MESSAGES)
OPENAI = (CHAT, TEXT)

# (field, endpoints, values, meaning, a value that is refused or None)
FIELDS = [
    ("model", ALL, "any text", "ignored: one model is served, its name stands in the answer", 5),
    ("messages", (CHAT, MESSAGES), "list", "the conversation, at least one message", "hi"),
    ("input", (RESPONSES,), "text or list", "the conversation as a text or as the full list of items", 5),
    ("instructions", (RESPONSES,), "text", "a system message before the input", 5),
    ("system", (MESSAGES,), "text or list", "system message", 5),
    ("prompt", (TEXT,), "text or ids", "raw prompt; one per request", {}),
    ("special", (TEXT,), "bool (false)", "control tokens form from the prompt's text", "x"),
    ("echo", (TEXT,), "bool (false)", "the prompt before the answer; not together with logprobs", "x"),
    ("max_tokens", OPENAI, "1.. (chat: up to the context, completions: 16)", "reasoning and answer together", 0),
    ("max_completion_tokens", (CHAT,), "1..", "the same under its newer name, which wins", 0),
    ("max_output_tokens", (RESPONSES,), "1..", "reasoning and answer together", 0),
    ("max_tokens", (MESSAGES,), "1.., required", "reasoning and answer together", 0),
    ("stream", ALL, "bool (false)", "server-sent events in the API's own grammar", "yes"),
    ("stream_options", OPENAI, "{include_usage}", "a last chunk with usage and timings; only with stream", 1),
    ("temperature", ALL, "0..100", "0: always the likeliest token", -1),
    ("top_k", ALL, "-1..2^30", "0 or -1: off", -2),
    ("top_p", ALL, "above 0 up to 1", "nucleus", 0),
    ("min_p", ALL, "0..1", "drops tokens below this share of the likeliest", 2),
    ("repetition_penalty", ALL, "0.01..100 (1)", "over prompt and answer; also repeat_penalty", 0),
    ("presence_penalty", ALL, "-100..100 (0)", "over the answer", 1e9),
    ("frequency_penalty", ALL, "-100..100 (0)", "over the answer", "x"),
    ("logit_bias", ALL, "{id: -1000..1000}", "added to the logits of these tokens", {"a": 1}),
    ("seed", ALL, "0..2^63-1", "same seed, same text, with and without drafts", -1),
    ("n", OPENAI, "1..8 (1)", "choices; choice i of a seed is always the same", 9),
    ("stop", OPENAI, "text or up to 16", "ends before it; not looked for in reasoning and calls", [""]),
    ("stop_sequences", (MESSAGES,), "up to 16", "the same", [""]),
    ("ignore_eos", ALL, "bool (false)", "goes on after the end token", 1),
    ("logprobs", (CHAT,), "bool (false)", "log-probabilities of the answer's tokens, before any parameter", "x"),
    ("top_logprobs", (CHAT,), "0..20", "the likeliest besides; needs logprobs", 21),
    ("logprobs", (TEXT,), "0..20", "the same in the older form", 21),
    ("tools", (CHAT, RESPONSES, MESSAGES), "list", "functions; strict must be false. Responses: also grouped, type namespace", {}),
    ("tool_choice", (CHAT, RESPONSES), "auto, none (auto)", "none: the token that opens a call is banned", "required"),
    ("tool_choice", (MESSAGES,), "type auto, none", "with disable_parallel_tool_use", {"type": "any"}),
    ("parallel_tool_calls", (CHAT, RESPONSES), "bool (true)", "false: the answer ends after its first call", 1),
    ("enable_thinking", (CHAT, RESPONSES, MESSAGES), "bool", "whether the model thinks first", "x"),
    ("chat_template_kwargs", (CHAT, RESPONSES, MESSAGES), "object", "enable_thinking, thinking_option, thinking_budget", {"x": 1}),
    ("thinking", (CHAT, RESPONSES, MESSAGES), "object", "type enabled, adaptive or disabled; budget_tokens", {"type": "x"}),
    ("thinking_budget", (CHAT, RESPONSES, MESSAGES), "0..", "reasoning tokens; then </think> is put and the answer goes on; 0: off", -1),
    ("reasoning_effort", (CHAT,), "none .. max", "none 0, minimal 256, low 1024, medium 4096 tokens, high, xhigh and max no limit", "x"),
    ("reasoning", (CHAT, RESPONSES), "{effort}", "the same", {"effort": "x"}),
    ("output_config", (MESSAGES,), "{effort}", "the same", {"effort": "x"}),
    ("user", (CHAT, TEXT, RESPONSES), "text", "whose turn it is in the queue; also prompt_cache_key, metadata.user_id", 5),
    ("token_times", (CHAT,), "bool (false)", "each chunk carries engine_us, the CLOCK_MONOTONIC time of its tokens", 1),
]

# Refused by name on every endpoint: constraints, by whatever server's name a client knows them.
CONSTRAINTS = {
    "response_format": {"type": "json_schema", "json_schema": {}}, "structured_outputs": {"x": 1}, "guided_json": {"type": "object"},
    "guided_regex": "a", "guided_choice": ["a"], "guided_grammar": "a", "structural_tag": {"x": 1}, "grammar": "root", "regex": "a",
    "ebnf": "root", "json_schema": {"x": 1}, "allowed_token_ids": [1], "bad_words": ["a"], "stop_token_ids": [1], "min_tokens": 2,
    "chat_template": "x", "continue_final_message": True, "prompt_logprobs": 1,
}

# Fields that are refused by name because an answer without them would be another one. (field, endpoint, value)
REFUSED = [
    ("functions", CHAT, [{"name": "f"}]), ("modalities", CHAT, ["audio"]), ("audio", CHAT, {"voice": "x"}),
    ("web_search_options", CHAT, {"x": 1}), ("echo", CHAT, True), ("best_of", CHAT, 2), ("best_of", TEXT, 2), ("suffix", TEXT, "x"),
    ("previous_response_id", RESPONSES, "resp_x"), ("conversation", RESPONSES, "c"), ("background", RESPONSES, True),
    ("prompt", RESPONSES, {"id": "x"}), ("top_logprobs", RESPONSES, 2), ("include", RESPONSES, ["message.output_text.logprobs"]),
    ("text", RESPONSES, {"format": {"type": "json_object"}}), ("mcp_servers", MESSAGES, [{"x": 1}]),
    ("container", MESSAGES, "c"), ("output_format", MESSAGES, {"type": "json_schema"}),
]


def options(program):
    text = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    rows, inside = [], False
    for line in text.splitlines():
        if re.match(r"^\S.*:$", line):
            inside = line == "Server:"
        match = re.match(r"^  (--\S+)( \S+)?\s{2,}(.*)$", line)
        if inside and match:
            rows.append((f"`{match.group(1)}{match.group(2) or ''}`".replace('|', chr(92) + '|'), match.group(3)))
    return ["| option | meaning (default) |", "|---|---|"] + [f"| {a} | {b.replace('|', chr(92) + '|')} |" for a, b in rows]


def fields():
    names = {CHAT: "chat", TEXT: "completions", RESPONSES: "responses", MESSAGES: "messages"}
    rows = ["| field | where | values (default) | meaning |", "|---|---|---|---|"]
    for field, where, values, meaning, _ in FIELDS:
        places = "all" if where == ALL else ", ".join(names[w] for w in where)
        rows.append(f"| `{field}` | {places} | {values} | {meaning.replace('</think>', '`</think>`')} |")
    return rows


def refused():
    names = {CHAT: "chat", TEXT: "completions", RESPONSES: "responses", MESSAGES: "messages"}
    words = {"text": "`text.format` other than text", "response_format": "`response_format` other than text",
             "modalities": "`modalities` other than text", "include": "`include` of log-probabilities"}
    by = {"all": [words.get(field, f"`{field}`") for field in CONSTRAINTS]}
    for field, where, _ in REFUSED:
        by.setdefault(names[where], []).append(words.get(field, f"`{field}`"))
    return ["| endpoint | refused with 400 |", "|---|---|"] + [f"| {k} | {', '.join(v)} |" for k, v in by.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    program = os.environ.get("SPARKLING", str(ROOT / "build" / "sparkling"))
    text = PAGE.read_text()
    for name, rows in (("options", options(program)), ("fields", fields()), ("refused", refused())):
        pattern = re.compile(rf"(<!-- {name}: made by tools/api_doc.py -->\n).*?(<!-- end -->)", re.S)
        assert pattern.search(text), f"{PAGE} has no marker for {name}"
        text = pattern.sub(lambda m: m.group(1) + "\n".join(rows) + "\n" + m.group(2), text)
    if arguments.check:
        if text != PAGE.read_text():
            print("docs/API.md is not what tools/api_doc.py writes; run it")
            return 1
        return 0
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
