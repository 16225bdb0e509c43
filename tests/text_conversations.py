"""Generated conversations, and what the checkpoint's own template makes of them through jinja2."""
import json
import random

from jinja2.sandbox import ImmutableSandboxedEnvironment

from text_corpus import LOOKALIKES, piece

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Wetter in einer Stadt, z. B. Köln 🌧 <b>&'\"</b>",
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3},
                                                     "step": {"type": "number", "minimum": 1e-05, "maximum": 1e16}},
                    "required": ["city"]}}},
    {"type": "function", "function": {"name": "写文件", "description": "", "parameters": {"type": "object", "properties": {
        "path": {"type": "string"}, "text": {"type": "string"}, "mode": {"enum": ["a", "w"]}}, "additionalProperties": False}}},
    {"type": "function", "function": {"name": "nothing", "parameters": {"type": "object", "properties": {}}, "strict": None}},
    {"type": "function", "function": {"name": "calc", "description": "line\nbreak\ttab \u0001 \u007f \u2028",
     "parameters": {"type": "object", "properties": {"xs": {"type": "array", "items": {"type": "number"}}},
                    "examples": [0.1, 1.0, -0.0, 1e22, 123456789012345678901234567890, 1e-7, 3.0e5, 12345.678, True, None]}}},
]


def words(rng, low=0, high=8):
    return "".join(piece(rng) + rng.choice(("", " ", "\n")) for _ in range(rng.randint(low, high)))


def value(rng, depth=0):
    kind = rng.randrange(8 if depth < 2 else 6)
    if kind <= 1:
        return words(rng, 0, 3)
    if kind == 2:
        return rng.choice((0, 1, -7, 2**31, -(2**63), 2**64, 10**30))
    if kind == 3:
        return rng.choice((0.5, -0.0, 1e16, 9999999999999998.0, 1e-4, 0.00001, 1e300, 5e-324, 2.5e-8, rng.random(), rng.random() * 1e9))
    if kind == 4:
        return rng.choice((True, False))
    if kind == 5:
        return None
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {words(rng, 1, 1): value(rng, depth + 1) for _ in range(rng.randint(0, 3))}


def conversation(rng):
    messages = []
    if rng.random() < 0.5:
        text = words(rng)
        if rng.random() < 0.2:
            text += rng.choice(("detailed thinking on", "detailed thinking off", "Detailed thinking on"))
        messages.append({"role": "system", "content": text})
    for _ in range(rng.randint(0, 4)):
        if rng.random() < 0.1:
            messages.append({"role": "system", "content": words(rng)})
        messages.append({"role": "user", "content": words(rng) + rng.choice(LOOKALIKES + [""] * 10)})
        while rng.random() < 0.6:
            message = {"role": "assistant", "content": words(rng, 0, 4)}
            if rng.random() < 0.5:
                message["reasoning_content"] = words(rng, 0, 5)
            if rng.random() < 0.6:
                message["tool_calls"] = [
                    {"type": "function", "function": {"name": rng.choice(TOOLS)["function"]["name"], "arguments": {
                        rng.choice(("city", "path", "text", "键", "a b")): value(rng) for _ in range(rng.randint(0, 3))}}}
                    for _ in range(rng.randint(1, 3))]
            messages.append(message)
            for _ in range(len(message.get("tool_calls", ())) if rng.random() < 0.9 else 0):
                messages.append({"role": "tool", "content": words(rng, 0, 4)})
    chat = {"messages": messages, "add_generation_prompt": rng.random() < 0.7}
    if rng.random() < 0.5:
        chat["tools"] = rng.sample(TOOLS, rng.randint(1, len(TOOLS)))
    if rng.random() < 0.7:
        chat["enable_thinking"] = rng.random() < 0.5
    return chat


def conversations(count, seed):
    rng = random.Random(seed)
    return [conversation(rng) for _ in range(count)]


def template(path):
    """The template as the transformers package would run it."""

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = tojson
    with open(path, encoding="utf-8") as f:
        return env.from_string(f.read())


def render(jinja, chat):
    return jinja.render(**{"tools": None, **chat})


def driver_form(chat):
    """What the C++ side reads: tools and arguments as JSON text of another spacing, so that no digit passes through a double."""

    def text(x):
        return json.dumps(x, separators=(",", ":"))

    out = {**chat, "messages": [dict(m) for m in chat["messages"]]}
    if chat.get("tools"):
        out["tools"] = [text(t) for t in chat["tools"]]
    for message in out["messages"]:
        if "tool_calls" in message:
            message["tool_calls"] = [{"function": {**c["function"], "arguments": text(c["function"]["arguments"])}} for c in message["tool_calls"]]
    return out
