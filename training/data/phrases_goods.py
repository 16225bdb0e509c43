"""Parts of the families about counting, sharing and buying things."""
from .phrases import say

say("more", ["{n} <starts> {a} {it}|there are {a} {it} [in a box|on a shelf|at the home of {n}|on the floor]|a [box|shelf|drawer|room] [holds|has] {a} {it}|[on Monday|in the morning|last month|first] {n} [found|picked|made|counted|got] {a} {it}",
             "{n} <gains> {b} <more>|{n} <gains> [another|a further] {b}|{b} <more> [come in|arrive|are added|join them]|[on Friday|in the evening|this month|later] {n} [found|picked|made|counted|got] {b} [{it}|more|of them]"],
    "how many {it} [does {n} have|are there|is that|are there now] <total>|how many {it} [does {n} have|are there] <now>|what is the total number of {it}|how many {it} did {n} [find|get|make|have|pick|count] <total>|<find> the [total|sum|whole number]")
say("less", ["{n} <starts> {a} {it}|a [box|shop|shelf|bag] [has|holds|had] {a} {it}|there [are|were] {a} {it} [in a box|on a table|in a shop]",
             "{n} <loses> {b}[| of them| {it}]|{b} of [them|the {it}] [are|were] [taken away|lost|sold|eaten|broken|thrown away|given to a friend]|{b} [are|get] [sold|lost|broken]|{n} [takes|took] [out|away] {b} of [them|these]"],
    "how many {it} <left>|how many [{it} |]does {n} <stillhas>|how many are [there now|not gone|left]|<find> the number of {it} [left|that remain]|what is left")
say("groups", ["{n} [has|fills|buys|packs|carries|orders] {a} <box>|there are {a} [<box>|rows|shelves|tables|boxes] [in a room|at the home of {n}|]|{a} <box> [are full|stand in a room|arrive]",
               "[each|every one|each of them|every <abox>] [has|holds|contains|is filled with] {b} {it}|there are {b} {it} in [each|every one|each of them]|{b} {it} [go|fit|are put] in[to|] [each|every one]"],
    "how many {it} [does {n} have|are there|is that] [<total>|]|what is the [total|whole] number of {it}|<find> the number of [all |]{it}|how many {it} [are packed|come in|did {n} buy]")
say("share", ["{n} has {a} {it}|there are {a} {it}|{n} [brings|buys|bakes|takes] {a} {it}",
              "{n} [shares|splits|divides] them <equally> among {b} [friends|people|<kids>]|[they|the {it}] are [put|packed|sorted|divided] <equally> into {b} <box>|{b} [friends|people|<kids>] [share|split|divide] them <equally>|{n} makes {b} equal [piles|heaps|groups|parts] of them"],
    "how many {it} [does each one get|does one get|are in each one|are in one of them|go to each]|what does [each one|one of them] get|how many is that for each|<find> the number in each")
say("two_days_half", ["[on Monday|in May|on the first day|in the morning|last week|first] {n} [sold|made|picked|packed|baked|counted|found] {a} {it}|{n} [sold|made|picked|packed|found] {a} {it} [on Monday|in May|in the morning|last week]|{n} [read|wrote] {a} pages [last week|in May|on Monday]",
                      "[on Tuesday|in June|on the second day|in the evening|this week|later] [it was|{n} did|it was only|{n} managed] half as many|[the next day|the week after|then] {n} [did|made|got|had] half [as many|that number]|half as many [came|followed|were counted] [later|the next day|in June]"],
    "how many [|is that ]<total>|how many did {n} [do|have|get] <total>|what is the [total|sum] of both|<find> the [total|sum]|how many were there over [both|the two] [days|times]")
say("times_as_many", ["{n} <has> {a} {it}|{n} [made|found|sold|counted|bought] {a} {it}|there are {a} {it} [at the home of {n}|in the box of {n}]",
                      "{m} <has> {k} <times>|{m} [made|found|sold|counted|bought] {k} times as many [as {n}|]|{m} has {k} times [the {it} of {n}|what {n} has|as many as {n}]"],
    "how many {it} do <two> have[ <total>| together|]|how many {it} are there [<total>|together|for the two]|what [do the two have|is it] together|<find> [their sum|how many they have together|the sum for both]", free=True)
say("more_than", ["{n} <has> {a} {it}|{n} [found|sold|counted|bought|baked] {a} {it}",
                  "{m} <has> {d} more[ than {n}|]|{m} [found|sold|counted|bought|baked] {d} more [than {n}|]|{m} is ahead of {n} by {d}|{m} has {d} more than what {n} has|[for|with] {m} it is {d} more"],
    "how many {it} do <two> have[ <total>| together|]|how many {it} are there [<total>|together|for the two]|what is [the sum|it together|the whole number]|<find> [the sum for both|how many they have together]", free=True)
say("fewer_than", ["{n} <has> {a} {it}|{n} [found|made|counted|bought|baked] {a} {it}",
                   "{m} <has> {d} [fewer|less][ than {n}|]|{m} [found|made|counted|bought|baked] {d} [fewer|less] [than {n}|]|{m} is behind {n} by {d}|[for|with] {m} it is {d} [fewer|less]"],
    "how many {it} do <two> have[ <total>| together|]|how many {it} are there [<total>|together|for the two]|how many did <two> have <total>|what is [the sum|it together|the whole number]|<find> [the sum for both|how many they have together]", free=True)
say("buy_change", ["{n} [has|had|takes|brings|comes with|pays with|hands over] ${m}|there [is|are] ${m} in the [wallet|purse|pocket] of {n}|{n} [gets|is given] ${m} [to spend|]",
                   "{n} [buys|bought|takes|orders] {a} {g}s [for|at] ${p} <each>|{n} [buys|orders] {a} {g}s and [each|one] <cost> ${p}|{a} {g}s are bought [at|for] ${p} <each>|{n} [pays|spends] ${p} <each> for {a} {g}s"],
    "<howmuch> <isleft>|how much [money |change |]does {n} [get back|have left|keep|still have]|what is [the change|left]|<find> [the change|what is left]|what [comes|is given] back")
say("two_prices", ["{n} [buys|bought|orders|takes] {a} {g}s [at|for] ${p} <each>|{a} {g}s cost ${p} <each>|{n} <pays> ${p} <each> for {a} {g}s|there are {a} {g}s at ${p} <each>",
                   "{n} [buys|bought|orders|takes] {b} {h}s [at|for] ${q} <each>|{b} {h}s cost ${q} <each>|{n} <pays> ${q} <each> for {b} {h}s|there are {b} {h}s at ${q} <each>"],
    "<howmuch> does {n} [pay|spend|owe] <total>|what [is the total|do they cost together|is the whole cost]|<find> the [total|whole cost|sum]|<howmuch> [is that|is it|do all cost] <total>", free=True)
say("decimal_price", ["[a piece|one piece|one] of the {it} <cost> ${p}|the {it} cost ${p} <each>|{it} are [sold|offered] at ${p} <each>|the shop [asks|wants] ${p} for one of the {it}|each of the {it} costs ${p}",
                      "{n} [buys|takes|orders|wants|needs] {a}[ of them|]|{n} [pays for|puts] {a} [of them|in the bag]|{a} of them are [bought|needed|sold]"],
    "<howmuch> [does {n} pay|is that|do they cost|is it]|what [is the cost|do they cost|is the bill|must {n} pay]|<find> the [cost|total]|<howmuch> is needed for {a}", free=True)
say("decimal_change", ["{n} [buys|takes|orders] a {g} for ${p}|a {g} <cost> ${p}|{n} [pays|spends] ${p} for a {g}",
                       "{n} [buys|takes|orders] a {h} for ${q}|a {h} <cost> ${q}|{n} [pays|spends] ${q} for a {h}",
                       "{n} [pays with|hands over|gives|has] ${m}|{n} [pays with|gives] a ${m} bill|{n} has ${m} for both"],
    "<howmuch> <isleft>|how much [change |]does {n} [get back|have left|get|keep]|what is [the change|left]|<find> the change|what [comes|is given] back")
say("packs_needed", ["{n} [needs|wants|must have|has to bring] {a} {it}|{a} {it} are [needed|wanted] [for a party|by {n}|]|the [goal|plan] of {n} is {a} {it}",
                     "{n} [already has|has|owns|has got] {h}[ of them|]|{h} are [there already|already there|ready]|{h} of them are [at home|ready|in the cupboard]",
                     "they [come|are sold] in [packs|boxes|bags] of {k}|[a pack|a box|one pack|each pack] [has|holds|contains] {k}|there are {k} in [a|each|one] pack"],
    "how many packs [must {n} buy|are needed|does {n} need|have to be bought|should {n} get]|<find> the number of packs|what number of packs is needed", free=True)
say("eat_daily", ["{n} <starts> {s} {it}|there are {s} {it}[ in a shop| in the stock|]|a [shop|box|stock] [has|had|holds] {s} {it}",
                  "{n} <loses> {a} <day> [for {d} days|over {d} days|during {d} days]|for {d} days {a} [are used|are sold|are eaten|are taken] <day>|[each|every] day {a} of them [go|are used|are sold|are eaten] [for {d} days|over {d} days]|it [sells|loses|gives out] {a} <day> for {d} days"],
    "how many {it} <left>[| after {d} days]|how many [{it} |]does {n} <stillhas>|how many are there [after {d} days|then|at the end]|<find> the number of {it} [left|that remain]")
say("boxes_broken", ["{n} [has|gets|buys|received|carries|opens] {a} <box> [of|with] {b} {it} [each|]|there are {a} <box> with {b} {it} in each|[each|every one] of {a} <box> [holds|has] {b} {it}|{a} <box> [come|arrive] with {b} {it} each",
                     "{x} [of them |{it} |of the {it} |][are|were] [broken|bad|damaged|spoiled|lost|rotten]|{n} [throws away|finds|removes|takes out] {x} [broken|bad|damaged|spoiled] ones"],
    "how many [good {it} are there|{it} are good|are fine|are still good|are not bad|good ones are there]|how many {it} <left>|<find> the number of good {it}|how many can {n} use")
say("regroup", ["{n} has {a} <box> [of|with] {b} {it} [each|]|there are {a} [<box>|rows|heaps] with {b} {it} [each|in each]|[each|every one] of {a} [<box>|rows|shelves] [holds|has] {b} {it}|{a} [sets|piles|lots] of {b} {it} [lie there|are there|came in]",
                "{n} [puts|packs|sorts|places] them [all |]into [boxes|bags|groups|sets|heaps] of {f}|[they|all of them] are [packed|put|sorted] {f} [to|in] a [box|bag|group]|[a|each] new [box|bag|group] [takes|holds|gets] {f}|{n} [forms|builds] [sets|heaps] of {f}"],
    "how many [boxes|bags|groups|sets|heaps] [are filled|are there now|come out|does {n} get|are needed]|<find> the number of [boxes|groups|sets]|what number of [bags|sets|boxes] is that")
say("three_people", ["{n} <has> {a} {it}|{n} [made|sold|counted|bought] {a} {it}", "{m} <has> {k} times as many[ as {n}|]|{m} [made|sold|counted|bought] {k} times as many [as {n}|]|{m} has {k} times what {n} has",
                     "{o} <has> {d} more than {m}|{o} [made|sold|counted|bought] {d} more than {m}|{o} is ahead of {m} by {d}"],
    "how many {it} do [they|all three|the three] have[ <total>| together|]|how many {it} are there <total>|what is the sum of all three|<find> [the sum of all|how many they have together]", free=True)
say("half_of_rest", ["{n} <starts> {a} {it}|there [are|were] {a} {it}|a [box|shop] of {n} [has|had] {a} {it}",
                     "{n} [gives|hands|sends|passes] {g} [of them |]to {m}|{m} [gets|takes|receives] {g} of them|{g} of them [go|are given] to {m}",
                     "half of [the rest|what is left|the others|those left] [is|are|were] [sold|lost|used|eaten|given away]|{n} [sells|uses|loses|eats] half of [the rest|what is left|the others]|then {n} [sells|uses] half of those [left|that remain]"],
    "how many {it} <left>|how many does {n} <stillhas>|how many are there <now>|<find> the number [left|that remains]")
say("profit", ["{n} [buys|bought|gets|orders] {a} {it} [at|for] ${c} <each>|{n} [pays|paid|spends] ${c} <each> for {a} {it}|{a} {it} [are bought|cost {n}] [for|at|] ${c} <each>",
               "{n} [sells|sold] [them|all of them|them all] [at|for] ${p} <each>|they are [sold|given away] [at|for] ${p} <each>|[each|one] [sells|is sold|goes] for ${p}|people pay ${p} <each>|{n} gets ${p} <each>"],
    "<howmuch> [profit|gain] [does {n} make|is that|is there]|what is the [profit|gain]|<howmuch> does {n} [gain|earn|make|win] [<total>|]|<find> the [profit|gain]|what does {n} earn with this")
say("dozen", ["{n} [bought|has|gets|picks|makes|orders] {a} dozen {it}|there are {a} dozen {it} [in a box|on a table|in the kitchen]|a [box|baker|farmer] has {a} dozen {it}",
              "{x} [of them |{it} |][are|were] [used|broken|sold|bad|eaten|spoiled|given away]|{n} <loses> {x}[| of them]|{n} [eats|takes|gives] {x} [of them|away]"],
    "how many {it} <left>|how many [{it} |]does {n} <stillhas>|how many are there <now>|<find> the number [left|of {it} left]")
say("animals_legs", ["[a farm|a farmer|a village|a zoo] [has|keeps|owns] {a} {m}|there are {a} {m}|{a} {m} [stand|live|walk] [in a field|on a farm|there]",
                     "there are [also |]{b} {o}|{b} {o} [stand|live|walk|are] there [too|]|[it|the farm] has {b} {o} [too|]"],
    "how many legs [are there|do they have|do the animals have|is that|are that] [<total>|]|what is the number of legs|<find> the [number of |]legs|how many legs do all have", free=True)
say("pages", ["a book has {w} pages|the book of {n} has {w} pages|{n} has a book [of|with] {w} pages|{n} [starts|gets|wants to read] a book [of|with] {w} pages",
              "{n} reads {p} pages <day> [for|over|during] {d} days|for {d} days {n} reads {p} pages <day>|[each|every] day {n} [reads|gets through] {p} pages, [for|over] {d} days|{d} days long {n} reads {p} pages <day>"],
    "how many pages <left>|how many pages [are not read yet|must {n} still read|are still to read|does {n} have left]|<find> the number of pages left|what is left of the book")
