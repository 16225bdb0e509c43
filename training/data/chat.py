"""Small talk of several turns: facts and rules set by a system prompt, corrections, plain knowledge, greetings."""
from . import words
from .chat_topics import CAPITALS, OPPOSITES, TOPICS
from .family import spin
from .tool_catalog import clock, mail

GREETINGS = [("[Hello|Hi|Good morning|Hey]!", "[Hello!|Hi!] How can I help you?"), ("How are you?", "I am fine, thank you. What can I do for you?"),
             ("[Thanks|Thank you]!", "You are welcome."), ("[Bye|Goodbye]!", "Goodbye, and have a nice day."),
             ("Who are you?", "I am Ling Nano, a very small language model made to test an engine."),
             ("What can you do?", "I can solve simple word problems, call tools, copy text, find facts and answer in JSON.")]
RULES = [("Write only in capital letters.", str.upper), ("End every answer with the word '{w}'.", None),
         ("Begin every answer with '{w}:'.", None), ("Write only in small letters.", str.lower)]


def business(rng):
    """Facts of a made-up company: (system lines, question and answer pairs)."""
    name = words.made_up_word(rng).title()
    opens, closes, price, city, contact = clock(rng), clock(rng), rng.randint(2, 400), rng.choice(words.CITIES), mail(rng)
    goods, boss = rng.choice(words.GOODS), rng.choice(words.NAMES)
    facts = [
        (f"{name} opens at {opens} and closes at {closes}.", "When do you [open|close]?", f"{name} is open from {opens} to {closes}."),
        (f"A {goods} costs ${price}.", f"How much [is|does] a {goods}[ cost|]?", f"A {goods} costs ${price}."),
        (f"The shop is in {city}.", "Where is [the|your] shop?", f"The shop is in {city}."),
        (f"Write to {contact} for help.", "How can I [reach|contact] you?", f"You can write to {contact}."),
        (f"The manager is {boss}.", "Who is the manager?", f"The manager is {boss}."),
    ]
    rng.shuffle(facts)
    told = facts[:rng.randint(2, 5)]
    pairs = [(spin(rng, q), a) for _, q, a in told]
    pairs += [(spin(rng, q), "I do not know that.") for _, q, a in facts[len(told):]][:1]
    rng.shuffle(pairs)
    return f"You are the assistant of {name}. " + " ".join(t for t, _, _ in told), pairs


def correction(rng):
    """The user states something, corrects it, and asks later."""
    what = rng.choice(("name", "city", "color", "number", "pet"))
    draw = {"name": lambda: rng.choice(words.NAMES), "city": lambda: rng.choice(words.CITIES), "color": lambda: rng.choice(words.COLORS),
            "number": lambda: str(rng.randint(2, 9999)), "pet": lambda: rng.choice(words.ANIMALS)[:-1]}[what]
    first, second = draw(), draw()
    label = what if what == "name" else f"favorite {what}"
    turns = [(f"My {label} is {first}.", f"I will remember that your {label} is {first}.")]
    if rng.random() < 0.6:
        turns.append((spin(rng, f"[No, sorry|Actually|I was wrong], it is {second}."), f"Understood, your {label} is {second}."))
        first = second
    if rng.random() < 0.5:
        turns.append(knowledge(rng))
    return turns + [(spin(rng, f"What is my {label}?"), f"Your {label} is {first}.")]


def knowledge(rng):
    kind = rng.randint(0, 3)
    if kind == 0:
        country, capital = rng.choice(list(CAPITALS.items()))
        return spin(rng, f"[What is the capital of {country}?|Which city is the capital of {country}?|Name the capital of {country}.]"), f"The capital of {country} is {capital}."
    if kind == 1:
        a, b = rng.choice(OPPOSITES)
        if rng.random() < 0.5:
            a, b = b, a
        return spin(rng, f"What is the opposite of [{a}|the word {a}]?"), f"The opposite of {a} is {b}."
    if kind == 2:
        topic, text = rng.choice(list(TOPICS.items()))
        return spin(rng, f"[Tell me about {topic}.|What [do you know|can you say] about {topic}?|Explain {topic} to me.]"), text
    a, b = rng.randint(1, 99), rng.randint(1, 99)
    return spin(rng, f"[What is|How much is] {a} + {b}?"), f"{a} + {b} = {a + b}"


def ruled(rng, pairs):
    rule, change = rng.choice(RULES)
    word = words.made_up_word(rng)
    text = rule.format(w=word)
    if change is None:
        change = (lambda t: f"{t} {word}") if rule.startswith("End") else (lambda t: f"{word}: {t}")
    return text, [(q, change(a)) for q, a in pairs]


def sample(rng):
    system, pairs = "", []
    kind = rng.random()
    if kind < 0.4:
        system, pairs = business(rng)
    elif kind < 0.65:
        pairs = correction(rng)
    else:
        pairs = [knowledge(rng) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.3:
        q, a = rng.choice(GREETINGS)
        pairs.insert(0, (spin(rng, q), spin(rng, a)))
    if rng.random() < 0.25:
        rule, pairs = ruled(rng, pairs)
        system = f"{system} {rule}".strip()
    messages = [dict(role="system", content=system)] if system else []
    thinking = rng.random() < 0.5
    for question, answer in pairs:
        reply = dict(role="assistant", content=answer)
        if thinking:
            reply["reasoning_content"] = "A simple question."
        messages += [dict(role="user", content=question), reply]
    return dict(messages=messages, thinking=thinking)
