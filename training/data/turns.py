"""Turns a finished problem text another way without changing what it says: numbers as words, units spelled out, `twice`, joined sentences,
other forms of the question, pronouns, a greeting. They work on any text of any family, and each is drawn by itself."""
import re

from . import words

FEMALE = set("""Ana Carla Emma Grace Iris Kira Mia Olga Quinn Rosa Tina Vera Xena Yuki Zoe Alice Chloe Elena Gina Ingrid Katia Maya Nina
Petra Sofia Ursula Wanda Yara Bella Cora Ella Helen Julia Linda Nora Priya Susan Violet""".split())
NAME = re.compile(r"\b(" + "|".join(words.NAMES) + r")\b")
SUBJECT_AFTER = set("does did can must should will has is if when that and then as while until once after before because".split())
OBJECT_AFTER = set("to for by from with give gives gave bring brings lets cost costs hands takes take leave leaves left asks".split())
SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty""".split()
TENS = dict(zip(range(20, 100, 10), "twenty thirty forty fifty sixty seventy eighty ninety".split()))
NUMBER = re.compile(r"(?<![\w$.,/%°:-])(\d{1,2})(?![\w%/°:)-]|[.,]\d| (?:h|hrs|km|kg|L|m|g|ml|min|lb|km/h|mph)\b)")
TERSE = re.compile(r"[=+]|\bx\b| - |-\d|\d:|: ?\d")       # notes, where a word among figures would look odd
UNITS = [("kilometers", "km"), ("km an hour", "km/h"), ("km per hour", "km/h"), ("miles per hour", "mph"), ("liters", "L"), ("kg", "kilograms"),
         ("kg", "kilos"), ("km", "kilometers"), ("meters", "m"), ("hours", "h"), ("hours", "hrs"), ("minutes", "min"), ("grams", "g"),
         ("ml", "milliliters"), ("pounds", "lb")]
DOLLARS = re.compile(r"\$(\d+(?:\.\d+)?)(?![.,]?\d)(?= (?:each|apiece|an?|per|for|from|in|on|to|and|is|are|more|back|of|by|off|at|left|every|with|as|was|"
                     r"were|hourly|weekly|monthly|daily)\b|[.,;?)])")
HALVES = {"1/2": ("half",), "1/3": ("a third", "one third"), "1/4": ("a quarter", "one fourth"), "1/5": ("a fifth", "one fifth"),
          "1/6": ("a sixth",), "1/8": ("an eighth", "one eighth"), "1/10": ("a tenth",), "2/3": ("two thirds",), "3/4": ("three quarters",),
          "2/5": ("two fifths",), "3/5": ("three fifths",), "4/5": ("four fifths",), "3/8": ("three eighths",), "5/8": ("five eighths",)}
FRACTION = re.compile(r"\b(\d{1,2}/\d{1,2})(?= of )")
LOWERED = re.compile(r"(A|An|The|There|Each|Every|One|In|On|At|It|They|Then|After|Later|Soon|Of|From|Half|Another|Some|To|With|For|Next|By) ")
BACKWARD = re.compile(r"\b(they|them|it|its|these|those|that|this|he|she|his|her|then|now|together|afterwards|rest|others|left|do you|in all)\b", re.I)
GREETINGS = ["Hello!", "Hi there!", "Please help me with this.", "Here is a small problem.", "A question:", "I have a question.", "Quick question:",
             "This is from my homework.", "My teacher asks:", "Can you solve this?", "Here is a riddle.", "Solve this problem.", "Problem:",
             "Good morning!", "A friend asked me this.", "Please answer.", "Read carefully.", "Math class.", "Let us think about this."]
THANKS = ["Thanks!", "Thank you.", "Please give a number.", "Please show how you get there.", "Can you tell me?", "I hope you know it.", "What do you say?"]
SCENES = ["It is a sunny day.", "The weather is fine.", "Everybody is in a good mood.", "Nobody is in a hurry.", "This happened in a small town.",
          "It was a busy week.", "The story is true.", "There is music in the street.", "The doors are open.", "It rained a little."]
LEADS = ["Tell me {}.", "Please tell me {}.", "Can you tell me {}?", "Find out {}.", "Do you know {}?", "I would like to know {}.", "I wonder {}.",
         "Please find out {}.", "Say {}.", "We want to know {}.", "Could you work out {}?", "{n} asks {}."]
FRONTS = ["So, {}", "Now tell me: {}", "The question is: {}", "Question: {}", "Now, {}", "Think: {}", "And now: {}"]
ORDERS = ["Find {}.", "Give {}.", "Work out {}.", "Compute {}.", "Tell me {}.", "State {}.", "Can you find {}?", "Please determine {}."]
TIMES = ["Then", "After that,", "Next,", "Later,", "The next day,", "In the evening,", "Soon after,", "A week later,", "Later on,", "Some time later,",
         "Once that is done,", "Now", "This time,", "Shortly after that,"]
ADJECTIVES = "nice lovely fresh ordinary wonderful pretty fine simple".split()


def split(text):
    return re.split(r"(?<=[.!?]) ", text)


def plain(sentence):
    """Spelled so that `5%` and `5 percent` are the same sentence."""
    return sentence.lower().replace("%", " percent")


def lowered(sentence):
    """As it stands inside another sentence; None where that is not known."""
    if LOWERED.match(sentence):
        return sentence[0].lower() + sentence[1:]
    return sentence if NAME.match(sentence) or sentence[0] in "$0123456789" else None


def linked(rng, sentence):
    """An event of a story with a word of time before it."""
    inside = None if re.match(r"Then|Later|After|Next|Soon|Now", sentence) else lowered(sentence)
    return f"{rng.choice(TIMES)} {inside}" if inside and rng.random() < 0.2 else sentence


def number_words(rng, text):
    """Small numbers as words, all of them up to one limit."""
    if TERSE.search(text):
        return text
    limit, tens = rng.choice((9, 10, 12, 20)), rng.random() < 0.3

    def put(match):
        value = int(match.group(1))
        word = SMALL[value] if value <= limit else TENS.get(value) if tens else None
        return match.group() if word is None else word
    return capitals(NUMBER.sub(put, text))


def capitals(text):
    return re.sub(r"^[a-z]|(?<=[.?!] )[a-z]", lambda m: m.group().upper(), text)


def commas(rng, text):
    return re.sub(r"(?<![\d.])\d{4,}(?![\d.]\d|\d)", lambda m: f"{int(m.group()):,}", text)


def units(rng, text):
    for long, short in UNITS:
        if rng.random() < 0.4:
            text = re.sub(rf"(?<=\d) {long}\b", f" {short}", text)
    return text


def dollars(rng, text):
    return DOLLARS.sub(lambda m: f"{m.group(1)} dollar{'' if m.group(1) == '1' else 's'}", text)


def percent(rng, text):
    return re.sub(r"(?<=\d)%(?= |[.,;?])", " percent", text)


def percent_sign(rng, text):
    return re.sub(r"(?<=\d) percent\b", "%", text)


def twice(rng, text):
    return re.sub(r"(?<![\w$.,/-])2 times\b", "twice", text)


def fractions(rng, text):
    return FRACTION.sub(lambda m: rng.choice(HALVES[m.group()]) if m.group() in HALVES else m.group(), text)


def adjective(rng, text):
    items = re.search(rf"(?<=\d )({'|'.join(words.ITEMS)})\b", text)
    return text if not items else f"{text[:items.start()]}{rng.choice(ADJECTIVES)} {text[items.start():]}"


def joined(rng, text):
    """Two neighbouring statements as one sentence."""
    parts = split(text)
    places = [i for i in range(len(parts) - 1) if parts[i][-1] == parts[i + 1][-1] == "." and not re.search(r'[":]|^(If|When|Suppose|Given)', parts[i])
              and not re.search('[":]', parts[i + 1]) and lowered(parts[i + 1])]
    if not places:
        return text
    i = rng.choice(places)
    second = lowered(parts[i + 1])
    link = " and " if second.startswith("then ") else rng.choice((", and ", " and ", "; ", ", and ", ", while ", ", but "))
    return " ".join(parts[:i] + [parts[i][:-1] + link + second] + parts[i + 2:])


def third(verb):
    return {"have": "has", "do": "does", "go": "goes"}.get(verb) or verb + ("es" if verb.endswith(("s", "sh", "ch", "x", "o")) else "s")


def indirect(question):
    """`how many eggs Ana has` of `How many eggs does Ana have?`; None where the order of words is not known."""
    body = question[:-1]
    found = re.fullmatch(rf"(How many|How much|What)((?: \w+){{0,3}}) does ({NAME.pattern}) (still )?(\w+)( [^,;]*)?", body)
    if found:
        start, things, name, _, still, verb, rest = found.groups()
        return f"{start.lower()}{things} {name} {still or ''}{third(verb)}{rest or ''}"
    found = re.fullmatch(r"(How many|How much)((?: \w+){0,3}) (are|is) there( [^,;]*)?", body)
    if found:
        return f"{found.group(1).lower()}{found.group(2)} there {found.group(3)}{found.group(4) or ''}"
    if re.fullmatch(r"(?!.* (?:is|are) (?:that|it|these)\b)How (many|much)( \w+){0,3} (are|is|remain|remains|stay|stays) (left|still \w+|over|needed|sold|not \w+)?[^,;]*", body):
        return body[0].lower() + body[1:]
    return None


def asked(rng, text):
    """The question at the end in another form."""
    *rest, last = split(text)
    if not last.endswith("?") or '"' in last or ":" in last:
        return text
    found = re.fullmatch(r"What (?:is|was) (the [^,;]*)\?", last)
    if found and not re.search(r" (if|when) ", last):
        last = rng.choice(ORDERS).format(found.group(1))
    else:
        turned = indirect(last)
        if turned and rng.random() < 0.8:
            lead = rng.choice(LEADS[:-1] if not rest else LEADS)
            last = lead.replace("{n}", rng.choice(("A friend", "The teacher", "Somebody"))).format(turned)
        else:
            last = rng.choice(FRONTS).format(last[0].lower() + last[1:] if re.match(r"(How|What|By|In|At|With|For|Of) ", last) else last)
    return " ".join([*rest, last])


def question_first(rng, text):
    *rest, last = split(text)
    if not rest or not last.endswith("?") or "?" in " ".join(rest) or '"' in text or BACKWARD.search(last) or ":" in text:
        return text
    return " ".join([last, *rest])


def pronouns(rng, text):
    """She or he for a name that stands alone in the text, from its second occurrence on."""
    found = list(NAME.finditer(text))
    if len({m.group() for m in found}) != 1 or len(found) < 2 or re.search(r'"|\bI\b', text):
        return text
    subject, other = ("she", "her") if found[0].group() in FEMALE else ("he", "him")
    out, at = "", 0
    for index, m in enumerate(found):
        before, after = text[:m.start()], text[m.end():m.end() + 1]
        word = re.search(r"(\w+),? $", before)
        put = None
        if index and after == " ":
            if re.search(r"[.!?] $", before):
                put = subject.capitalize()
            elif word and word.group(1).lower() in SUBJECT_AFTER:
                put = subject
        if index and put is None and word and word.group(1).lower() in OBJECT_AFTER and not before.endswith(", ") and after in (" ", ".", "?", ","):
            put = other
        out += text[at:m.start()] + (put or m.group())
        at = m.end()
    return out + text[at:]


def scene(rng, text):
    return f"{rng.choice(SCENES)} {text}"


def greeting(rng, text):
    return f"{rng.choice(GREETINGS)} {text}"


def thanks(rng, text):
    return f"{text} {rng.choice(THANKS)}"


# Each with its share of texts. Those before a distractor is put in, then those after it.
TURNS = [(percent, 0.15), (percent_sign, 0.1), (dollars, 0.12), (units, 0.15), (twice, 0.4), (fractions, 0.35), (adjective, 0.04), (joined, 0.15),
         (asked, 0.22), (question_first, 0.08)]
LAST_TURNS = [(scene, 0.03), (number_words, 0.12), (commas, 0.03), (greeting, 0.07), (thanks, 0.04)]


def turned(rng, text, alone):
    """`alone`: no distractor follows, which a pronoun could be taken for."""
    for turn, share in TURNS:
        if rng.random() < share:
            text = turn(rng, text)
    return pronouns(rng, text) if alone and rng.random() < 0.25 else text


def finished(rng, text):
    for turn, share in LAST_TURNS:
        if rng.random() < share:
            text = turn(rng, text)
    return text
