"""Answers in JSON to a small schema: the facts stand in a text, the schema names fields and types."""
import json

from . import words
from .tool_catalog import date, mail, tenths

# field spellings, type, draw, how the text states it
FIELDS = [
    (("name", "customer", "person"), "string", lambda r: r.choice(words.NAMES), "The {f} is {v}."),
    (("age", "years"), "integer", lambda r: r.randint(5, 95), "The {f} is {v}."),
    (("city", "town", "place"), "string", lambda r: r.choice(words.CITIES), "The {f} is {v}."),
    (("price", "cost"), "number", tenths(1, 400), "The {f} is {v} dollars."),
    (("count", "amount", "quantity"), "integer", lambda r: r.randint(1, 9999), "The {f} is {v}."),
    (("paid", "active", "open"), "boolean", lambda r: r.random() < 0.5, None),
    (("color", "paint"), "string", lambda r: r.choice(words.COLORS), "The {f} is {v}."),
    (("email", "contact"), "string", mail, "The {f} is {v}."),
    (("date", "day"), "string", date, "The {f} is {v}."),
    (("items", "things"), "array of strings", lambda r: r.sample(words.ITEMS, r.randint(1, 4)), "The {f} are {v}."),
    (("scores", "numbers"), "array of integers", lambda r: [r.randint(0, 100) for _ in range(r.randint(1, 4))], "The {f} are {v}."),
    (("code", "id"), "string", lambda r: words.made_up_word(r), "The {f} is {v}."),
]


def stated(field, kind, value, sentence):
    if kind == "boolean":
        return f"It is {'' if value else 'not '}{field}."
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return sentence.format(f=field, v=value)


def sample(rng, thinking=None):
    chosen = [(rng.choice(names), kind, draw(rng), text) for names, kind, draw, text in rng.sample(FIELDS, rng.randint(2, 6))]
    told = [stated(*c) for c in chosen]
    extra = rng.sample([f for f in FIELDS if f[3]], 2)[:rng.randint(0, 2)]
    told += [stated(f"other {names[0]}", kind, draw(rng), text) for names, kind, draw, text in extra]
    rng.shuffle(told)
    schema = json.dumps({field: kind for field, kind, _, _ in chosen})
    answer = json.dumps({field: value for field, _, value, _ in chosen}, ensure_ascii=False)
    ask = rng.choice(("Answer with JSON of the form {s}.\n{t}", "{t}\nGive these facts as JSON: {s}", "Fill this JSON schema: {s}\nText: {t}"))
    thinking = rng.random() < 0.3 if thinking is None else thinking
    reply = dict(role="assistant", content=answer)
    if thinking:
        reply["reasoning_content"] = "Fields: " + ", ".join(c[0] for c in chosen)
    return dict(messages=[dict(role="user", content=ask.replace("{s}", schema).replace("{t}", " ".join(told))), reply], thinking=thinking)
