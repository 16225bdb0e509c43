"""More spellings of the events of a story, its opening and its question; sentences of the held-out ones excepted."""
from .phrases import capital, every_spin, expanded, spun

ITEMS = {
    "+": "{n} <gains> {k} <more>.|{n} <gains> [another|a further] {k}.|{k} [new {it} |more |others ][come in|are brought|are added|join them].|[Someone|A brother|The mayor] [brings|hands|sends] {n} {k} {it}.|[Then|Later|After that] {n} [buys|finds|picks up] {k} {it}.|The number [rises|grows|goes up] by {k}.",
    "-": "{n} <loses> {k}[| {it}].|{k} [of them |{it} |][break|get lost|are sold|are eaten|go missing|are taken away].|{n} [hands|gives|sends] {k} {it} to [a friend|a sister|the school].|[Then|Later|After that] {n} [loses|sells|drops] {k}.|The number [falls|drops|goes down] by {k}.|[A thief|A child|The dog] takes {k} [away|of them].",
    "*": "{n} [makes|gets] {k} times as many of them.|[Soon|Later|After a while] there are {k} times as many[| {it}].|The number [is multiplied by {k}|rises to {k} times what it was|becomes {k} times as large].|{n} now has {k} times [the old number|that many|what was there].|[The {it}|They] [grow|increase] to {k} times as many.",
    "/": "{n} keeps [one part in {k}|1/{k} of them|only 1/{k}|one of {k} equal parts].|The {it} are [split|divided|shared] [equally |evenly ]among {k} [people|friends], and {n} keeps one [share|part].|[After that|Then] just 1/{k} of them [is|are] [there|kept|left].|{n} divides them by {k} and keeps one part.|The number [is divided by {k}|shrinks to 1/{k}].",
    "%": "{n} [loses|uses|gives away|hands out] {k}[%| percent] of [them|the {it}].|{k}[%| percent] of [them|the {it}] [are|get] [sold|broken|stolen|eaten|lost].|[Later|After that] {k}[%| percent] [are gone|are taken away|get lost].|The number falls by {k}[%| percent].",
    "each": "{n} [buys|finds|gets] {j} [bags|packs|sacks] [of|with] {k} {it}[| each].|{j} [friends|people|neighbors] [bring|give|send] {n} {k} {it} each.|[Each|Every one] of {j} [people|aunts|shops] [sends|gives|adds] {k}[| {it}].|{j} times {k} {it} [come in|are added].|{n} [adds|gets] {j} [bags|crates], each with {k} {it}.",
    "each-": "{n} [hands|sends|sells] {k}[| {it}] to each of {j} [people|children|shops].|{j} [people|friends|children] [take|get|receive] {k} {it} each.|[Each|Every one] of {j} [people|children|shops] [buys|gets|is given] {k}[| {it}].|{n} [fills|packs] {j} bags with {k} {it} each and sells them.|{j} times {k} {it} [are taken away|are sold].",
}
MONEY = {
    "+": "{n} <gains> ${k}[| more].|[A friend|An uncle|The bank|A neighbor] [pays|sends|hands] {n} ${k}.|${k} [more |][are added|come in].|{n} [makes|earns|saves] ${k} [with a job|in a week|more].|The sum [grows|goes up|rises] by ${k}.",
    "-": "{n} [pays|gives away|loses|spends] ${k}.|{n} [buys|orders] [a coat|a meal|a ticket|some books] for ${k}.|${k} [are|get] [lost|stolen|paid|spent].|A [fee|fine|repair] [costs {n}|takes] ${k}.|The sum [falls|goes down|drops] by ${k}.|{n} [hands|gives|sends] ${k} to a [friend|brother|shop].",
    "*": "[Soon|Later|After a while] there is {k} times as much.|The [sum|amount|money] [is multiplied by {k}|rises to {k} times what it was|becomes {k} times as large].|{n} now has {k} times [that much|the old sum|what was there].|The [sum|money] [grows|increases] to {k} times [as much|its size].|{n} makes {k} times as much of it.",
    "/": "{n} keeps [one part in {k}|only 1/{k}|just 1/{k} of it|one of {k} equal parts].|The [money|sum] is [split|divided|shared] [equally |evenly ]among {k} [people|friends], and {n} keeps one [share|part].|[After that|Then] only 1/{k} of it [is there|is kept|is left].|{n} divides it by {k} and keeps one part.|The sum shrinks to 1/{k}.",
    "%": "{n} [loses|pays|gives away|uses] {k}[%| percent] of [it|the money|the sum].|{k}[%| percent] of [it|the sum] [is|gets] [spent|stolen|given away].|[Later|After that] {k}[%| percent] [is gone|is paid|is spent].|The sum falls by {k}[%| percent].",
    "each": "{n} gets ${k} for each of {j} {it}.|{j} [friends|people|neighbors] [pay|give|send] {n} ${k} each.|[Each|Every one] of {j} [people|aunts|shops] [pays|gives|sends] {n} ${k}.|[For|During] {j} [days|weeks|hours] {n} [earns|gets|makes] ${k} [each|every time].|{n} sells {j} {it} at ${k} [apiece|a piece].|{n} has a job of {j} hours at ${k} an hour.",
    "each-": "{n} [buys|orders|takes] {j} {it} at ${k} [apiece|a piece].|{j} {it} cost {n} ${k} each.|[Each|Every one] of {j} [friends|helpers|people] [gets|receives|is given] ${k}.|{n} [gives|sends|hands] ${k} to each of {j} [people|children].|[For|During] {j} [days|weeks] {n} [pays|spends] ${k} [each|every time].|{n} pays {j} bills of ${k}.",
}
WATER = {
    "+": "{n} [adds|fills in|puts in|gives] {k} liters[| more].|{k} [more liters|liters more] [flow in|run in|are added|are filled in].|[Rain|A pipe|A hose] [adds|brings] {k} liters.|The [water|amount] [rises|grows] by {k} liters.|[Then|Later] {k} liters [run in|are poured in].",
    "-": "{n} [uses|pours away|drains|drinks] {k} liters.|{k} liters [are|get] [lost|taken out|pumped out|drained].|[A plant|A hole|The sun] takes {k} liters[| away].|The [water|amount] [falls|drops|goes down] by {k} liters.|[Then|Later] {k} liters [flow out|run out|are gone].",
    "*": "[Soon|Later|After a while] it holds {k} times as much.|The [water|amount] [is multiplied by {k}|rises to {k} times what it was|becomes {k} times as large|grows to {k} times as much].|There is now {k} times [that much|the old amount|what was there].|{n} makes it {k} times as much.",
    "/": "{n} keeps [one part in {k}|only 1/{k}|just 1/{k} of it|one of {k} equal parts].|The water is [shared|divided|poured] [equally |evenly ]into {k} [pools|barrels|pots] and [we take one|one is kept].|[After that|Then] only 1/{k} of it [is there|is left].|{n} divides it by {k} and keeps one part.|The amount shrinks to 1/{k}.",
    "%": "{k}[%| percent] of [it|the water] [is|gets] [lost|pumped out|spilled|taken].|[Later|After that] {k}[%| percent] [is gone|is used|dries up].|{n} [uses|pours away] {k}[%| percent] of it.|The amount falls by {k}[%| percent].",
    "each": "{n} [adds|empties in|fills in] {j} [pots|cans|bottles] of {k} liters[| each].|[For|During] {j} [hours|days] {k} liters [flow in|run in|are added] [each time|every time].|[Each|Every one] of {j} [pipes|people|cans] adds {k} liters.|{j} times {k} liters [are added|come in].|A hose brings {k} liters [each|every] minute, for {j} minutes.",
    "each-": "{n} [fills|takes out] {j} [pots|cans|buckets] of {k} liters[| each].|[For|During] {j} [hours|days] {k} liters [flow out|run out|are used] [each time|every time].|[Each|Every one] of {j} [horses|people|gardens] [takes|uses|gets] {k} liters.|{j} times {k} liters [are taken out|are used].|A hole loses {k} liters [each|every] minute, for {j} minutes.",
}
OPENINGS = {
    "chain_items": "{n} <has> {s} {it}.|There are {s} {it} in the [house|shop|bag|box] of {n}.|[First|In the beginning|On Monday] {n} [has|had|owned] {s} {it}.|The [shop|farm|shelf] of {n} [has|holds|had] {s} {it}.|{n} [begins|began] with {s} {it}.",
    "chain_money": "{n} [owns|holds|had|saved] ${s}.|There are ${s} in the [wallet|purse|bank account|box] of {n}.|[First|In the beginning|On Monday] {n} [has|had|owned] ${s}.|The [wallet|savings book] of {n} [has|holds|shows] ${s}.|{n} [begins|began] with ${s}.",
    "chain_water": "{n} has a [tank|pool|barrel|pond] with {s} liters.|A [pool|barrel|pond] of {n} [holds|has|contains] {s} liters.|[First|In the beginning|On Monday] there are {s} liters in the [tank|pool|barrel] of {n}.|The [tank|barrel] of {n} [begins|began] with {s} liters.|{s} liters are in the [tank|pool|pond] of {n}.",
}
ENDINGS = {
    "chain_items": "How many {it} [does {n} have|are there] <now>?|How many {it} <left>?|What is the number of {it} <now>?|<find> the number of {it} [at the end|now].|How many does {n} <stillhas>?",
    "chain_money": "How much money [does {n} have|is there|is left] <now>?|<howmuch> does {n} have <now>?|What is the sum <now>?|<find> the sum [at the end|now].|How many dollars does {n} <stillhas>?",
    "chain_water": "How many liters are [there|in it|left] <now>?|How much water [is in it|is left|is there] <now>?|What is the amount of water <now>?|<find> the liters [at the end|now].|What does it hold <now>?",
}
EVENTS = {"chain_items": ITEMS, "chain_money": MONEY, "chain_water": WATER}


class More:
    """Draws from one text of many spellings, never one of `barred`."""

    def __init__(self, text, held_out, respelled=False):
        """`respelled`: texts in which a percent sign may become a word later, and the other way round."""
        self.text, self.barred = expanded(text), {s.lower() for s in every_spin(held_out)}
        if respelled:
            self.barred |= {s.replace("%", " percent") for s in self.barred} | {s.replace(" percent", "%") for s in self.barred}

    def draw(self, rng):
        while True:
            text = capital(spun(rng, self.text))
            if text.lower() not in self.barred:
                return text
