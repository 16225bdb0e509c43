"""Exact copying of code-like text: identifiers, numbers, brackets, paths and indentation that cannot be guessed."""
from . import words

ASKS = ["Copy this text exactly:\n{t}", "Repeat the following text without any change:\n{t}",
        "Write the same text again:\n{t}", "Give this back to me exactly as it is:\n{t}"]
TYPES = ["int", "float", "str", "bool", "list", "dict", "bytes"]


def identifier(rng):
    word = words.made_up_word(rng)
    style = rng.randint(0, 4)
    other = words.made_up_word(rng, 1, 2)
    return (word, f"{word}_{other}", word + other.title(), word.upper(), f"{word}{rng.randint(0, 99)}")[style]


def number(rng):
    return rng.choice((str(rng.randint(0, 99999)), f"{rng.random() * 1000:.3f}", hex(rng.randint(0, 2 ** 32))))


def line(rng):
    i, n = (lambda: identifier(rng)), (lambda: number(rng))
    kind = rng.randint(0, 12)
    if kind == 0: return f"{i()} = {n()}"
    if kind == 1: return f"def {i()}({i()}, {i()}={n()}):"
    if kind == 2: return f"    return {i()}[{n()}] + {i()}"
    if kind == 3: return f"if ({i()} != {n()} && !{i()}) {{ {i()}(); }}"
    if kind == 4: return f"import {i()}.{i()} as {i()}"
    if kind == 5: return f"/{i()}/{i()}/{i()}.{rng.choice(('txt', 'py', 'json', 'cc'))}:{rng.randint(1, 999)}"
    if kind == 6: return f"{{\"{i()}\": {n()}, \"{i()}\": [{n()}, {n()}]}}"
    if kind == 7: return f"  {rng.choice(TYPES)} {i()}[{rng.randint(1, 64)}]; // {i()} {i()}"
    if kind == 8: return f"<{(t := i())} id=\"{n()}\">{i()}</{t}>"
    if kind == 9: return f"{rng.randint(2000, 2030)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d} {i()}@{i()}.com {n()}"
    if kind == 10: return f"for {i()} in range({n()}): {i()}.append({i()})"
    if kind == 11: return f"SELECT {i()}, {i()} FROM {i()} WHERE {i()} >= {n()};"
    return "".join(rng.choice("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789+/=_-") for _ in range(rng.randint(8, 32)))


def block(rng, characters):
    lines = []
    while sum(map(len, lines)) < characters:
        lines.append(line(rng))
    return "\n".join(lines)


def sample(rng, low=60, high=900, thinking=None):
    text = block(rng, rng.randint(low, high))
    thinking = rng.random() < 0.3 if thinking is None else thinking
    reply = dict(role="assistant", content=text)
    if thinking:
        reply["reasoning_content"] = "Copy the text."
    return dict(messages=[dict(role="user", content=rng.choice(ASKS).format(t=text)), reply], thinking=thinking)
