"""Parts of the families about groups of people, fractions, farms and counting with several conditions."""
from .phrases import say

say("fraction_of", ["{n} <starts> {a} {it}|there [are|were] {a} {it}|a [box|shop|farm] [has|had] {a} {it}",
                    "{n} [gives away|sells|uses|loses|eats] 1/{k} of [them|the {it}]|1/{k} of [them|these|the {it}] [are|were] [lost|used|bad|broken|taken away|gone]|one part [in|of] {k} is [lost|sold|eaten|given away|gone]|[one in {k}|every {k}th one] is [lost|sold|bad]"],
    "how many {it} <left>|how many [{it} |]does {n} <stillhas>|how many are [good|still there|left|not gone]|<find> the number [left|that remains]")
say("fraction_more", ["{n} has {a} {it}|there are {a} {it}|a [box|shop|farm|school] has {a} {it}|{n} [counts|makes|buys] {a} {it}",
                      "{j}/{k} of [them|these|the {it}] are [green|small|old|lost|gone|broken|used]|{n} [sells|paints|gives away|takes] {j}/{k} of [them|these]|exactly {j}/{k} of them are [blue|green|small]"],
    "how many [{it} |][is that|are that|are these|are they|is it]|<find> their number|what number is that|how many {it} [does that mean|are meant]")
say("bus", ["[a bus|a train|a tram|a boat] [has|starts with|carries] {a} [people|passengers|riders]|there are {a} [people|passengers|riders] on a [bus|train|tram]|{a} [people|riders] [sit|are] on a [bus|train|boat]",
            "[at the first stop|first|then] {o} [get off|leave|get out|go out] and {i} [get on|come in|enter|get in]|{o} [people |][leave|get off] and {i} [join|get on|come in] [at the first stop|first]",
            "[at the second stop|at the next stop|later|after that] {p} [get off|leave|get out|go out] and {j} [get on|come in|enter|get in]|{p} [people |][leave|get off] and {j} [join|get on|come in] [at the next stop|later]"],
    "how many [people |passengers |riders |][are on it|are there|are on board|are inside] [now|then|in the end|]|how many <left>|<find> the number of [people|riders] [now|on board]|what number of [people|riders] is that")
say("rows_seats", ["a [hall|theater|cinema|church|stadium] has {r} rows of {s} [seats|chairs]|there are {r} rows with {s} [seats|chairs] [each|in each]|[each|every one] of {r} rows has {s} [seats|chairs]|{r} rows of {s} [seats|chairs] stand in a [hall|room]",
                   "{e} [seats |chairs |of them |][are|stay|remain] [empty|free|not used]|nobody sits on {e} of them|there are {e} [empty|free] [seats|ones]"],
    "how many [people are there|people sit there|people came|seats are used|guests are there|are taken|are used]|<find> the number of [people|guests|taken seats]|how many have a guest")
say("classes", ["[a school|a trip|a camp] has {c} classes [of|with] {s} <kids>[| each]|there are {c} classes with {s} <kids> [each|in each]|{c} classes [come|go on a trip|meet], [each|every one] with {s} <kids>|[each|every one] of {c} classes has {s} <kids>",
                "there are [also |]{t0} teachers|{t0} teachers [come along|go with them|are there|join them|work there]|it has {t0} teachers"],
    "how many people [are there|is that|are that|go|come] [<total>|]|<find> the number of people|what is the [whole |total ]number of people|how many [is that|are they] <total>", free=True)
say("buses_needed", ["{a} <kids> [go on a trip|want to travel|travel|need a ride]|a [trip|school|group] has {a} <kids>|there are {a} <kids>",
                     "{t0} [teachers|adults] [go with them|come along|travel too|join them]|there are {t0} [teachers|adults][| too]|it has {t0} [teachers|adults]",
                     "[a|each|one|every] bus [seats|takes|holds|has room for|carries] {s}[| people]|there are {s} [seats|places] in [a|each|one] bus|{s} people fit in [a|one] bus"],
    "how many [full |]buses [are needed|must come|do they need|will be full|are used]|<find> the number of buses|what number of buses [is needed|do they need]", free=True)
say("boys_girls", ["[there are|a club has|a school has|a class has] {b} boys|{b} boys [are|play|meet] at the {p}|at the {p} there are {b} boys",
                   "there are {d} fewer girls[| than boys]|the girls are {d} fewer|{d} fewer girls [are there|come|play]|[girls|the girls] are fewer by {d}|it has {d} fewer girls"],
    "how many [children|kids|students|pupils] [are there|is that|are that|are they] [<total>|]|how many are they <total>|<find> the number of [children|kids]|what is the number of [children|kids] [<total>|]")
say("votes", ["{a} people [vote|voted|take part|choose]|there are {a} votes|in [an election|a choice|a club] {a} votes [are|were] [given|counted]|{a} votes are counted",
              "{n} [gets|wins|receives|takes] {p}[%| percent] [of them|of the votes|]|{p}[%| percent] [vote for|choose|are for|want] {n}|for {n} there are {p}[%| percent]",
              "{m} [gets|wins|receives|takes] [the rest|all others|the others|what is left]|the [rest|others] [vote for|choose|are for|want] {m}|all others [vote for|choose|want] {m}"],
    "how many more votes [does {m} get|are for {m}|has {m}]|by how many votes [is {m} ahead|does {m} win|does {m} lead]|what is the difference|<find> the [difference|lead of {m}]")
say("orchard", ["[an orchard|a garden|a farm|{n}] has {r} rows of {s} {f} trees|there are {r} rows with {s} {f} trees [each|in each]|{n} [plants|owns|keeps] {r} rows of {s} {f} trees|[each|every one] of {r} rows has {s} {f} trees",
                "[each|every|one] tree [has|carries|gives|brings|bears] {k} fruits|{n} [takes|gets|picks] {k} fruits from [each|every] [tree|one]|there are {k} fruits on [each|every] tree|{k} fruits [grow|hang] on [each|every] tree"],
    "how many fruits [are there|is that|are that|does {n} get|are picked|grow there] [<total>|]|<find> the number of fruits|what is the number of [all |]fruits")
say("eggs_sold", ["{n} has {h} hens that lay {e} eggs [each|each a week|each <week>]|{h} hens [of {n} |]lay {e} eggs each|[each|every one] of {h} hens lays {e} eggs|{n} [keeps|owns] {h} hens and [each|every one] lays {e} eggs",
                  "{n} [eats|uses|keeps|boils|gives away] {u}[| eggs| of them]|{u} [eggs |of them |][are|get] [eaten|broken|used|lost]|{u} of them [break|are kept]",
                  "{n} sells [the rest|the others|all others|what is left] [at|for] ${p} <each>|the [rest|others] [are|is] sold [at|for] ${p} <each>|[each|every] other egg [is sold|goes] for ${p}"],
    "<howmuch> [money |][is that|is it|is earned|comes in]|<howmuch> does {n} [earn|get|make|receive]|what [does {n} earn|is earned]|<find> the [money|sum] earned")
say("herd", ["{n} [has|keeps|owns] {a} {m}|there are {a} {m} [on a farm|in a field|at the farm of {n}]|a [farm|farmer|village] [has|owns] {a} {m}",
             "there are {k} times as many {o}|{n} has {k} times as many {o}|the {o} are {k} times as many|the [number of |]{o} [is|are] {k} times [that|the number of {m}]",
             "{d} animals [are sold|are given away|run away|are lost|die]|{n} [sells|gives away|loses] {d} [animals|of them|of the animals]|then {d} [of all animals|of the animals|animals] [are sold|leave]"],
    "how many animals <left>|how many animals [are there|does {n} have|does {n} keep] <now>|<find> the number of animals [left|that remain]|how many does {n} <stillhas>")
say("feed", ["{n} [has|keeps|owns|feeds] {a} {m}|there are {a} {m} [on a farm|at the farm of {n}|]|a [farm|farmer] has {a} {m}",
             "[each|every one|each animal|one of them] [eats|needs|gets|takes] {k} kg <day>|{k} kg [is|are] [eaten|needed] <day> by [each|each one|every one]|{n} gives [each|each one|every one] {k} kg <day>",
             "the feed [is for|must last|should last] {d} days|{n} [plans|buys] for {d} days|{d} days [pass|go by]"],
    "how many kg [do they eat|are eaten|are needed|is that|does {n} need] [in {d} days|for {d} days|over {d} days]|how much feed [is needed|do they eat] [in|for] {d} days|<find> the [kg|feed] for {d} days|how many kg is that <total>")
say("points", ["{n} [made|hits|scored|gets] {a} [three-point shots|threes|shots of three points|shots of 3]|{a} [shots|throws] [bring|are worth|count] 3 points each|there are {a} [shots|throws] of three points",
               "{n} [made|hits|scored|gets] {b} [two-point shots|twos|shots of two points|shots of 2]|{b} [shots|throws] [bring|are worth|count] 2 points each|there are {b} [shots|throws] of two points",
               "{n} [made|hits|scored|gets] {c} [free throws|ones|shots of one point|shots of 1]|{c} [shots|throws] [bring|are worth|count] 1 point each|there are {c} [shots|throws] of one point"],
    "how many points [is that|are that|are there|does {n} have|did {n} make|is it] [<total>|]|what is the [sum|number of points|total]|<find> the [points|sum|total]|how many points did the team get", free=True)
say("goals", ["[in season one|in the first year|at first|first] {n} [made|had|shot|scored] {a} goals|{n} [made|had|shot|scored] {a} goals [in the first year|first|at first|in May]|a team [made|had|shot] {a} goals in the first year",
              "[in the second year|then|next|in June] [it was|there were|it made] {k} times as many|the second [year|time|season] [had|brought|saw] {k} times as many|{k} times as many [came|followed] [next|in the second year]",
              "[in the third year|at last|last|in July] [it was|there were|it made] {d} fewer than [in the second|before|the time before]|the third [year|time|season] [had|brought|saw] {d} fewer than the second|the third was {d} [below|under|less than] the second"],
    "how many goals [is that|are that|are there|were there|did {n} make] [<total>|]|what is the [sum|number of goals]|<find> the [sum|number of goals]|how many is that <total>")
say("letters", ["{n} [writes|sends] {a} letters <week>|[each|every] week {n} [writes|sends|posts] {a} letters|{a} friends get a letter from {n} <week>|{n} writes to {a} friends <week>",
                "[each|every|one] [letter|one] has {p} pages|there are {p} pages in [each|every] letter|{n} fills {p} pages for [each|every] letter|[a|each] letter is {p} pages long",
                "{n} does [so|this|that] for {w} weeks|this goes on for {w} weeks|{w} weeks [pass|go by]|it lasts {w} weeks"],
    "how many pages [is that|are that|are written|does {n} fill|did {n} write] [<total>|in {w} weeks|]|what is the number of pages|<find> the [number of |]pages|how many pages is it <total>")
say("both_kinds", ["{n} has {a} {it}|there are {a} {it} [in a bag|on a table|]|a [shop|bag|shelf|drawer] [has|holds] {a} {it}",
                   "{x0} [of them |][are|look] {c}|{x0} are {c} ones|there are {x0} {c} ones", "{y0} [of them |][are|look] {e}|{y0} are {e} ones|there are {y0} {e} ones",
                   "[the rest|all others|the others|everything else] [are|is] {h}|{h} are [the rest|all others|the others]"],
    "how many [{it} |][are {h}|{h} ones are there|are of the color {h}|{h} {it} are there]|<find> the number of {h} ones|what is the number of {h} ones|how many are {h}", c="color", e="color", h="color")
say("swap", ["{n} has {a} {it}|{n} [owns|holds|starts with|brings|came with] {a} {it}", "{m} has {b}[| {it}| of them]|{m} [owns|holds|starts with|brings|came with] {b}[| {it}]",
             "{n} [gives|passes|sends|sells] {g} [of them |]to {m}|{m} [gets|takes|receives|buys] {g} from {n}|{g} [of them |]go from {n} to {m}|{n} gives {m} {g}"],
    "how many [{it} |]do <two> have [<total>|together|]|how many {it} are there [<total>|together|for both]|what is [their sum|the sum of both|it together]|<find> [their sum|how many they have together]")
say("twice_then_give", ["{n} <starts> {a} {it}|there [are|were] {a} {it}[| at the home of {n}]|the [box|shop] of {n} [has|had] {a} {it}",
                        "they [grow|become|grow to] {k} times as many|[the number|their number] [becomes|grows to] {k} times as [many|much]|{n} makes {k} times as many of them|soon there are {k} times as many",
                        "{n} [hands|passes|sends|gives] {g} to each of {f} [friends|people|<kids>]|{f} [people|<kids>|neighbors] [take|receive|get] {g} each|[each|every one] of {f} [friends|people] [takes|receives|gets] {g}"],
    "how many {it} <left>|how many [{it} |]does {n} <stillhas>|how many are [there|left] <now>|<find> the number [left|that remains]")
say("queue", ["{a} people [wait|stand|are in line] at the {p}|there [is|are] a line of {a} people [at|in front of] the {p}|the line at the {p} has {a} people|{a} [people|guests|visitors] wait",
              "{l} [more|others] [arrive|come|join|join the line]|{l} people [come|step] in [after that|too|]|another {l} [come|arrive|join]",
              "{s} [people |of them |][are served|can go in|leave|go] <minute> for {m} minutes|[for|during|over] {m} minutes {s} [people |][are served|can go in|leave|go in] <minute>|[each|every] minute {s} [people |][are served|leave|go in], for {m} minutes"],
    "how many [people |][still wait|are waiting|are still in line|wait now|are there]|how many people <left>|<find> the number [still waiting|in line now]|how long is the line [now|then|after that]")
