"""Look-up of planted facts in a long text. Several questions per text, so that one long context teaches a lot."""
from . import words

FACTS = ["The code of {k} is {v}.", "The password of {k} is {v}.", "{k} keeps the number {v}.", "The box of {k} is called {v}.",
         "The street of {k} is {v}."]
QUESTIONS = ["What is the code of {k}?", "What is the password of {k}?", "Which number does {k} keep?", "How is the box of {k} called?",
             "What is the street of {k}?"]
SUBJECTS = ["The old man", "A child", "The teacher", "My sister", "The captain", "A stranger", "The farmer", "Nobody", "The queen", "Our neighbor"]
VERBS = ["walked to", "looked at", "spoke about", "painted", "remembered", "sold", "found", "dreamed of", "waited near", "asked about"]
THINGS = ["the river", "an old house", "the market", "a small boat", "the mountain", "a letter", "the garden", "the bridge", "a clock", "the forest"]
TAILS = ["in the morning", "after the rain", "with a smile", "for a long time", "without a word", "on a cold day", "near the sea",
         "last summer", "again and again", "before sunset"]


def filler(rng):
    return f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(THINGS)} {rng.choice(TAILS)}."


def value(rng, kind):
    return str(rng.randint(1000, 999999)) if kind in (0, 2) else words.made_up_word(rng)


def sample(rng, characters, questions, prose=None):
    """`prose`: optional source of other filler text; `characters`: length of the context."""
    facts, keys = [], set()
    for _ in range(max(questions, rng.randint(4, 24))):
        key = words.made_up_word(rng, 2, 3).title()
        if key not in keys:
            keys.add(key)
            kind = rng.randrange(len(FACTS))
            facts.append((kind, key, value(rng, kind)))
    told = [FACTS[kind].format(k=key, v=v) for kind, key, v in facts]
    room, sentences = characters - sum(map(len, told)), []
    while room > 0:
        text = prose(rng) if prose and rng.random() < 0.5 else filler(rng)
        sentences.append(text)
        room -= len(text) + 1
    for text in told:
        sentences.insert(rng.randint(0, len(sentences)), text)
    asked = rng.sample(facts, min(questions, len(facts)))
    messages, context = [], " ".join(sentences)
    for index, (kind, key, v) in enumerate(asked):
        question = QUESTIONS[kind].format(k=key)
        if index == 0:
            question = f"Read this text.\n{context}\n{question}" if rng.random() < 0.7 else f"{question}\n{context}"
        messages += [dict(role="user", content=question), dict(role="assistant", content=v)]
    return dict(messages=messages, thinking=False)
