"""Tool-calling samples: an offer of tools, zero to three calls, results coming back, an answer that quotes them."""
import json

from .family import spin
from .tool_catalog import CATALOG

PARAMETER_NAMES = {"city": ("city", "location", "town"), "amount": ("amount", "sum"), "text": ("text", "phrase"),
                   "people": ("people", "guests_count", "party_size"), "title": ("title", "label"), "room": ("room", "place")}
OTHER_REQUESTS = ["Write a poem about {w}.", "Who painted the picture in the {w} room?", "Can you repair my {w}?",
                  "Please iron my {w} shirt.", "What did I dream about {w} last night?", "Bake me a {w} cake.",
                  "Tell me the meaning of the word {w}.", "Drive me to the {w} shop."]
NO_TOOL = "None of the offered functions can do this."


def spoken(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(v) for v in value[:-1]) + " and " + str(value[-1]) if len(value) > 1 else str(value[0])
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return str(value)


def nested_schema(value):
    """JSON schema of one drawn object or list, so that the offer tells the inner types."""
    if isinstance(value, dict):
        return {"properties": {k: {"type": "integer" if isinstance(v, int) else "string"} for k, v in value.items()}}
    return {"items": {"type": "integer" if isinstance(value[0], int) else "string"}}


def make_offer(rng, entry):
    """One tool of the catalog under drawn spellings: (json offer, entry, parameter spelling by catalog name)."""
    names, description, parameters, *_ = entry
    spelling = {p: rng.choice(PARAMETER_NAMES.get(p, (p,))) for p in parameters}
    properties = {}
    for p, (kind, draw, about) in parameters.items():
        properties[spelling[p]] = {"type": kind, "description": about}
        if kind in ("array", "object"):
            properties[spelling[p]].update(nested_schema(draw(rng)))
    function = {"name": rng.choice(names), "description": description,
                "parameters": {"type": "object", "properties": properties, "required": list(properties)}}
    return {"type": "function", "function": function}, entry, spelling


def make_call(rng, offer, held_out):
    """(request text, tool call, result, answer) for one use of an offered tool."""
    tool, (_, _, parameters, asks, fields, answer), spelling = offer
    values = {p: draw(rng) for p, (_, draw, _) in parameters.items()}
    request = (asks[-1] if held_out else rng.choice(asks[:-1])).format(**{p: spoken(v) for p, v in values.items()})
    call = {"name": tool["function"]["name"], "arguments": {spelling[p]: v for p, v in values.items()}}
    result = {f: draw(rng) for f, draw in fields.items()}
    texts = {p: spoken(v) for p, v in {**values, **result}.items()}
    return request, call, json.dumps(result, ensure_ascii=False), answer.format(**texts)


def sample(rng, held_out=False, calls=None):
    """The conversation with its calls and, when there were any, the answer after the results."""
    offers = [make_offer(rng, entry) for entry in rng.sample(CATALOG, rng.randint(2, 4))]
    tools = [offer[0] for offer in offers]
    calls = rng.choice((0, 1, 1, 1, 1, 2, 2, 3)) if calls is None else calls
    thinking = rng.random() < 0.5
    if calls == 0:
        from .words import COLORS
        request = spin(rng, rng.choice(OTHER_REQUESTS)).format(w=rng.choice(COLORS))
        reply = dict(role="assistant", content=NO_TOOL)
        if thinking:
            reply["reasoning_content"] = "No offered function fits."
        return dict(messages=[dict(role="user", content=request), reply], tools=tools, thinking=thinking)
    made = [make_call(rng, rng.choice(offers), held_out) for _ in range(calls)]
    request = " ".join(m[0] for m in made)
    caller = dict(role="assistant", content="", tool_calls=[{"type": "function", "function": m[1]} for m in made])
    final = dict(role="assistant", content=" ".join(m[3] for m in made))
    if thinking:
        caller["reasoning_content"] = "Calls needed: " + ", ".join(m[1]["name"] for m in made)
        final["reasoning_content"] = "The results answer the question."
    messages = [dict(role="user", content=request), caller, *(dict(role="tool", content=m[2]) for m in made), final]
    return dict(messages=messages, tools=tools, thinking=thinking)
