"""Stories of many steps: a quantity that events change one after the other. The source of the hard set.

Each scenario is a family of its own: an opening, a set of events, an ending. Events know their worked line, so a story
of any length can be told; `size` sets how large the numbers are.
"""
from fractions import Fraction

from . import arithmetic, phrases_chains, turns, voices_chains, words  # noqa: F401
from .family import COMPOSED, HELD_OUT, VOICES, Problem, spin, with_distractors, wording
from .voices import TOLD

# Wordings by kind of event. {k} is its number, {j} how often, {n} the person, {it} the things.
ITEM_EVENTS = {
    "+": ["{n} [buys|gets|finds] {k} more {it}.", "[A friend|An aunt|A neighbor] gives {n} {k} {it}.", "{k} more {it} [arrive|are delivered].", "Another {k} {it} come in for {n}."],
    "-": ["{n} [gives away|sells|loses] {k} {it}.", "{k} {it} [are broken|are stolen|go missing].", "{n} [uses|throws away] {k} of them.", "{k} of the {it} disappear."],
    "*": ["Then the number of {it} [grows to|becomes] {k} times as many.", "{n} ends up with {k} times as many {it} as before.", "The stock grows {k}-fold."],
    "/": ["{n} keeps only 1/{k} of the {it}.", "Then {n} shares the {it} equally among {k} [boxes|people] and keeps one share.", "Only one part in {k} of the {it} stays."],
    "%": ["{n} sells {k}% of the {it}.", "Then {k}% of the {it} are [lost|given away].", "{k} percent of the {it} vanish."],
    "each": ["{n} gets {k} {it} from each of {j} friends.", "{j} boxes with {k} {it} each are [added|delivered].", "Each of {j} friends brings {k} {it}."],
    "each-": ["{n} gives {k} {it} to each of {j} friends.", "{j} customers buy {k} {it} each.", "Each of {j} friends takes {k} {it}."],
}
MONEY_EVENTS = {
    "+": ["{n} [earns|receives|finds] ${k}.", "[A friend|A parent] gives {n} ${k}.", "Another ${k} come in for {n}."],
    "-": ["{n} [spends|pays] ${k} for [food|a trip|a gift].", "{n} [loses|lends out] ${k}.", "A bill takes ${k} away."],
    "*": ["The money [grows to|becomes] {k} times as much.", "{n} wins and has {k} times as much as before.", "The sum rises {k}-fold."],
    "/": ["{n} keeps 1/{k} of the money and gives the rest away.", "{n} splits the money equally among {k} people and keeps one share.", "Just one part in {k} of the money stays."],
    "%": ["{n} spends {k}% of the money.", "Then {k}% of the money [is paid as tax|is lost].", "{k} percent of the money vanish."],
    "each": ["{n} sells {j} {it} for ${k} each.", "{n} works {j} hours for ${k} an hour.", "For each of {j} {it} {n} is paid ${k}."],
    "each-": ["{n} buys {j} {it} for ${k} each.", "{n} pays ${k} to each of {j} helpers.", "Each of {j} {it} costs {n} ${k}."],
}
WATER_EVENTS = {
    "+": ["{k} liters [flow in|are added].", "{n} pours in {k} liters.", "Another {k} liters come in."],
    "-": ["{k} liters [leak out|are used].", "{n} takes {k} liters out.", "A pump removes {k} liters."],
    "*": ["Rain brings the water to {k} times as much.", "Then there is {k} times as much water as before.", "The amount rises {k}-fold."],
    "/": ["Only 1/{k} of the water is kept.", "The water is split equally into {k} tanks and we look at one of them.", "Just one part in {k} of the water stays."],
    "%": ["{k}% of the water [dries up|is used].", "Then {k}% of the water leaks out.", "{k} percent of the water vanish."],
    "each": ["A pipe adds {k} liters a minute for {j} minutes.", "{n} pours in {j} buckets of {k} liters.", "During {j} minutes {k} liters come in per minute."],
    "each-": ["{j} bottles of {k} liters are filled from it.", "A pump removes {k} liters a minute for {j} minutes.", "During {j} minutes {k} liters flow out per minute."],
}
SCENARIOS = {
    "chain_items": (ITEM_EVENTS, ["{n} has {s} {it}.", "{n} starts with {s} {it}.", "At first {n} owns {s} {it}."],
                    ["How many {it} does {n} have [now|in the end]?", "How many {it} are there [now|at the end]?", "What number of {it} does {n} finish with?"], "{t} {it}"),
    "chain_money": (MONEY_EVENTS, ["{n} has ${s}.", "{n} starts with ${s}.", "At first {n} owns ${s}."],
                    ["How much money does {n} have [now|in the end]?", "How many dollars are left [now|at the end]?", "What sum does {n} finish with?"], "${t}"),
    "chain_water": (WATER_EVENTS, ["A tank of {n} holds {s} liters.", "There are {s} liters in a tank of {n}.", "At first a tank of {n} has {s} liters."],
                    ["How many liters are in it [now|in the end]?", "How much water is there [now|at the end]?", "What amount of water does it finish with?"], "{t} liters"),
}


MORE = {scenario: (
    {kind: phrases_chains.More(phrases_chains.EVENTS[scenario][kind], wordings[HELD_OUT]) for kind, wordings in events.items()},
    phrases_chains.More(phrases_chains.OPENINGS[scenario], openings[HELD_OUT]),
    phrases_chains.More(phrases_chains.ENDINGS[scenario], endings[HELD_OUT]))
    for scenario, (events, openings, endings, _) in SCENARIOS.items()}
VOICED = {scenario: {kind: phrases_chains.More(TOLD[scenario][kind], wordings[HELD_OUT], respelled=True)
                     for kind, wordings in dict(events, opening=openings, ending=endings).items()}
          for scenario, (events, openings, endings, _) in SCENARIOS.items()}


def pick(rng, wordings, more, held_out, composed, voiced=None):
    if voiced and rng.random() < VOICES:
        return voiced.draw(rng)
    if composed and not held_out and rng.random() < composed:
        return more.draw(rng)
    return spin(rng, wording(rng, wordings, held_out))


def event(rng, kind, value, size):
    """(k, j, worked expression(s), new value) or None when the numbers do not come out printable."""
    env = {"v": value}
    if kind == "+":
        env["k"] = Fraction(rng.randint(2, size))
        steps = ["v + k"]
    elif kind == "-":
        if value < 3:
            return None
        env["k"] = Fraction(rng.randint(1, min(size, int(value) - 1)))
        steps = ["v - k"]
    elif kind == "*":
        env["k"] = Fraction(rng.randint(2, 5 if size < 1000 else 12))
        steps = ["v * k"]
    elif kind == "/":
        divisors = [d for d in range(2, 10) if value % d == 0 and value / d > 2]
        if not divisors:
            return None
        env["k"] = Fraction(rng.choice(divisors))
        steps = ["v / k"]
    elif kind == "%":
        parts = [p for p in range(5, 100, 5) if (value * p / 100).denominator == 1]
        if not parts:
            return None
        env["k"] = Fraction(rng.choice(parts))
        steps = ["v % k", "v - x"]
    else:
        env["k"], env["j"] = Fraction(rng.randint(2, max(3, size // 8))), Fraction(rng.randint(2, 9 if size < 1000 else 40))
        steps = ["k * j", "v + x" if kind == "each" else "v - x"]
    lines = []
    for step in steps:
        line, env["x"] = arithmetic.work(step, env)
        lines.append(line)
        if env["x"] <= 0 or not arithmetic.tidy(env["x"]) or env["x"] > 10 ** 7:
            return None
    return env, lines, env["x"]


def story(rng, scenario, steps, size, held_out=False, distractors=0, composed=COMPOSED, voiced=0):
    events, openings, endings, closing = SCENARIOS[scenario]
    turning = voiced and not held_out and rng.random() < voiced
    told = VOICED[scenario] if turning else {}
    more_events, more_openings, more_endings = MORE[scenario]
    kinds = ["+", "-", "+", "-", "*", "/", "%", "each", "each-"]
    name, items = rng.choice(words.NAMES), rng.choice(words.ITEMS)
    value = Fraction(rng.randint(max(4, size // 20), size))
    start, texts, lines = value, [], []
    while len(lines) < steps:
        kind = rng.choice(kinds)
        made = event(rng, kind, value, size)
        if made is None or len(lines) + len(made[1]) > steps + 1:
            continue
        env, worked, value = made
        texts.append(pick(rng, events[kind], more_events[kind], held_out, composed, told.get(kind)).format(
            n=name, it=items, k=arithmetic.text(env["k"]), j=arithmetic.text(env.get("j", 0))))
        lines += worked
    fill = dict(n=name, it=items, s=arithmetic.text(start), t=arithmetic.text(value))
    opening = pick(rng, openings, more_openings, held_out, composed, told.get("opening")).format(**fill)
    ending = pick(rng, endings, more_endings, held_out, composed, told.get("ending")).format(**fill)
    if turning:
        texts = [turns.linked(rng, text) for text in texts]
    question = " ".join([opening, *texts, ending])
    if turning:
        question = turns.turned(rng, question, not distractors)
    question = with_distractors(rng, question, distractors)
    if turning:
        question = turns.finished(rng, question)
    return Problem(question, lines, arithmetic.text(value), closing.format(**fill), scenario, len(lines))
