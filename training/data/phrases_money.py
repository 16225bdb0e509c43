"""Parts of the families about wages, saving, percent and prices."""
from .phrases import say

say("wage", ["{n} [works as|is] a {j} [for|and earns|and gets|and is paid|at] ${p} <hour>|a {j} [earns|gets|makes|is paid] ${p} <hour>|{n} [earns|gets|makes] ${p} <hour>|the [pay|wage|rate] of the {j} is ${p} <hour>|for [one|each|every] hour {n} gets ${p}",
             "{n} works {h} hours|{n} [is at work|has worked|stays] for {h} hours|the work takes {h} hours|the job lasts {h} hours"],
    "<howmuch> does {n} [earn|get|make][| <total>]|<howmuch> [money |][is that|is it|is earned]|what is the [pay|wage]|<find> the [pay|wage]", free=True)
say("wage_week", ["{n}[, a {j},|] [earns|gets|makes|is paid] ${p} <hour>|the [pay|wage] of {n} is ${p} <hour>|a {j} called {n} [earns|gets] ${p} <hour>",
                  "{n} works {h} hours <day> for {d} days|{n} works {d} days [of|with] {h} hours each|for {d} days {n} works {h} hours <day>|the job takes {d} days with {h} hours <day>",
                  "{n} [spends|pays|gives away|loses] ${s}[| for food| for a gift| for clothes]|[a bill of|food for|a trip for] ${s} is paid|${s} [go|are spent] [for food|for rent|at the market]"],
    "<howmuch> <isleft>|how much money [does {n} have left|is left|remains|does {n} keep]|what is left[| of the pay| of the wage]|<find> what is left")
say("save_weeks", ["{n} wants [to buy |]a {g} [for|that costs|priced at] ${c}|a {g} <cost> ${c}|the price of a {g} is ${c}",
                   "{n} [has|already has|owns|has saved] ${h}[| already| so far]|${h} [are|is] [there already|already saved|in the bank]",
                   "{n} [saves|puts aside|puts away|adds|keeps] ${w} <week>|[each|every] week {n} [saves|adds|puts aside] ${w}|${w} <week> are saved"],
    "how many weeks [does it take|are needed|must {n} save|does {n} need|will it take|must {n} wait]|after how many weeks [is it enough|can {n} buy it|is the {g} paid]|<find> the number of weeks", free=True)
say("percent_of", ["{n} has {a} {it}|there are {a} {it}|a [shop|box|store|school] has {a} {it}|{n} [counts|makes|buys] {a} {it}",
                   "{p}[%| percent] of [them|these|the {it}] are [red|green|small|large|sold|old|broken|lost|given away]|{n} [sells|uses|paints|gives away] {p}[%| percent] of them|exactly {p}[%| percent] are [red|green|small|gone|sold]"],
    "how many [{it} |][is that|are that|are these|are they|is it]|<find> their number|what number is that|how many {it} [does that mean|are meant]")
say("percent_left", ["{n} <starts> {a} {it}|there [are|were] {a} {it}|a [shop|box|store|farm] [has|had] {a} {it}",
                     "{n} <loses> {p}[%| percent][ of them|]|{p}[%| percent] of [them|these|the {it}] [are|were] [lost|stolen|used|eaten|taken away|bad]|{p}[%| percent] [get|are] [lost|sold|broken]"],
    "how many {it} <left>|how many [{it} |]does {n} <stillhas>|how many are [not gone|still there|left|there now]|<find> the number [left|that remains]")
say("discount", ["[a|the] {g} [costs|is|is priced at|has a price of] ${a}|the [old |]price of a {g} is ${a}|{n} wants a {g} [of|for|that costs] ${a}",
                 "[the shop|a coupon|a sale|the seller] takes {p}[%| percent] off|[it is|everything is] {p}[%| percent] [off|cheaper]|the price [falls|is lowered|is cut|goes down|is reduced] by {p}[%| percent]|there is a [discount|sale] of {p}[%| percent]|{n} gets {p}[%| percent] off"],
    "what is the [new|lower|reduced|final] price|<howmuch> does [{n} pay|it cost now|it cost then|one pay]|<find> the [new|final|reduced] price|what [must|does] {n} pay")
say("price_rise", ["[a|the] {g} [costs|was|is priced at|sold for|had a price of] ${a}|the [old |]price of a {g} [is|was] ${a}|a shop [asks|asked|wants] ${a} for a {g}",
                   "it [rises|goes up|grows|climbs|increases] by {p}[%| percent]|the price [is raised|goes up|climbs|grows] {p}[%| percent]|it [gets|becomes] {p}[%| percent] more expensive|the [shop|seller] adds {p}[%| percent]"],
    "what is the [new|higher|final] price|<howmuch> does it cost [now|then|after that]|<find> the [new|final] price|what [must|does] one pay now")
say("tip", ["[the |]food [costs|is|comes to] ${a}|{n} [pays|spends] ${a} for food|{n} eats for ${a}|the meal of {n} costs ${a}", "[the |]drinks [cost|are|come to] ${b}|{n} [pays|spends] ${b} for drinks|{n} drinks for ${b}|the drinks cost ${b}",
            "{n} [adds|gives|leaves] a [tip of {p}[%| percent]|{p}[%| percent] tip][| on both| on the sum]|a tip of {p}[%| percent] [is added|comes on top]|{p}[%| percent] [of the sum |]is given as a tip"],
    "<howmuch> does {n} [pay|spend] [<total>|]|what is the [total|bill|whole sum]|<find> the [total|whole bill]|<howmuch> is [the bill|it] with the tip")
say("tax", ["{n} [buys|orders|takes|bought] {a} {g}s [at|for] ${q} <each>|{a} {g}s [cost|are sold at|are] ${q} <each>|{n} [gets|orders] {a} {g}s and each costs ${q}",
            "[a|the] tax [of {p}[%| percent] |of {p}% ][is added|comes on top|is due]|there is a tax of {p}[%| percent]|{p}[%| percent] tax [is added|comes on top|must be paid]|the tax [is|makes] {p}[%| percent]"],
    "<howmuch> does {n} [pay|spend|owe] [<total>|with tax|]|what is the [total|whole price|price with tax]|<find> the [total|price with tax]|<howmuch> is it with the tax")
say("split_bill", ["a [bill|meal|dinner] [is|costs|comes to] ${a}|{f} [friends|people] [have|get|owe] a bill of ${a}|{n} and friends, {f} people <total>, have a bill of ${a}",
                   "[a coupon|a voucher|the owner] takes off ${x}|${x} [are|is] [taken off|paid by an aunt|already paid]|[first |]{n} pays ${x} alone|they get ${x} off",
                   "{f} [friends|people|guests] [split|share|divide|pay] the rest <equally>|the rest is [split|shared|divided] <equally> [among|by] {f} [friends|people|guests]|all {f} [people |friends |]share what is left <equally>"],
    "<howmuch> does [each|each one|one] pay|what [is one share|does each pay|is the share of each]|<find> the share of each|<howmuch> is it for [one|each]")
say("coins", ["{n} has {a} quarters|there are {a} quarters[| in a jar| in a box| in a purse]|{n} [finds|counts|saves] {a} quarters", "{n} has {b} dimes|there are {b} dimes[| too| as well]|{n} [finds|adds|saves] {b} dimes|{b} dimes are there",
              "{n} has {c} nickels|there are {c} nickels[| too| as well]|{n} [finds|adds|saves] {c} nickels|{c} nickels are there"],
    "how many cents [is that|are that|are there|does {n} have|is it] [<total>|]|what is it worth in cents|<find> the [value|sum|worth] in cents|how much is that in cents", free=True)
say("bills", ["{n} has {a} [twenties|$20 bills|twenty-dollar bills]|there are {a} [twenties|$20 bills|twenty-dollar bills]|{n} [finds|counts|saves] {a} [$20 bills|bills of $20|twenties]",
              "{n} has {b} [tens|$10 bills|ten-dollar bills]|there are {b} [tens|$10 bills|ten-dollar bills]|{n} [finds|counts|saves] {b} [$10 bills|bills of $10|tens]",
              "{n} has {c} [fives|$5 bills|five-dollar bills]|there are {c} [fives|$5 bills|five-dollar bills]|{n} [finds|counts|saves] {c} [$5 bills|bills of $5|fives]"],
    "how much money [is that|is it|does {n} have]|how many dollars [is that|are there|does {n} have] [<total>|]|<find> the [value|sum] in dollars|what is the [sum|total]", free=True)
say("allowance", ["{n} [gets|receives|earns|is given|puts aside] ${a} <week> [for|over|during] {w} weeks|for {w} weeks {n} [gets|receives|earns|is given] ${a} <week>|[each|every] week {n} [gets|keeps] ${a}, for {w} weeks",
                  "[an uncle|a friend|a sister|a neighbor] [adds|gives|brings] ${b}|{n} [gets|finds|is given] ${b} [more|as a gift|for a birthday]|a gift of ${b} [comes|is added]",
                  "{n} [spends|pays|loses|gives away] ${s}|{n} buys a [toy|book|game|bag] for ${s}|${s} [go|are spent] [for a toy|for a trip|at the market]"],
    "<howmuch> <isleft>|how much money [does {n} have|is left|remains|does {n} keep]|what is left|<find> what is left|<howmuch> does {n} have <now>")
say("rent", ["[the |a |]rent [is|costs|comes to] ${r} <month>|{n} [pays|owes|spends] ${r} rent <month>|a [room|house|flat] [is|goes for|is rented at] ${r} <month>|[each|every] month {n} pays ${r} rent",
             "{n} [pays|gives|owes] a deposit of ${d}|there is a [deposit|fee] of ${d}|a [deposit|fee] of ${d} [is paid|is due|comes on top]|${d} [must be|are] paid [at the start|only once]",
             "{n} [stays|lives there|rents it] [for|] {m} months|it is [rented|used] for {m} months|the contract [is for|lasts] {m} months"],
    "<howmuch> does {n} [pay|spend] <total>|what is the [total|whole cost]|<find> the [total|whole cost]|<howmuch> [is that|is it|must be paid] <total>", free=True)
say("phone_plan", ["[a|the] [phone plan|plan|contract] [costs|has a fee of|starts at] ${b}|{n} pays a [base|fixed] [fee|price] of ${b}|the [base|fixed] [fee|price] is ${b}",
                   "[each|every|one|a] minute [costs|is] ${p}|{n} pays ${p} <minute>|calls cost ${p} <minute>|there is a charge of ${p} <minute>",
                   "{n} [talks|calls|speaks|phones] [for |]{m} minutes|{m} minutes are [used|spoken]|the calls take {m} minutes"],
    "<howmuch> does {n} [pay|owe|spend] [<total>|]|what is the [bill|total]|<find> the [bill|total]|<howmuch> is [that|it|the bill]", free=True)
say("tickets", ["[a ticket|entry|the price] is ${p} for [an adult|adults|each adult]|adults pay ${p}[| each]|an adult ticket <cost> ${p}|[each|every] adult pays ${p}",
                "[a ticket|entry|the price] is ${q} for [a child|children|each child]|children pay ${q}[| each]|a child ticket <cost> ${q}|[each|every] child pays ${q}",
                "{a} adults and {c} children [come|go in|visit|enter|buy tickets]|{n} [sells|buys] {a} tickets for adults and {c} for children|there are {a} adults and {c} children|a group has {a} adults and {c} children"],
    "<howmuch> [do they pay|does the group pay|is paid|is that|is it] [<total>|]|what is the [total|sum]|<find> the [total|sum]|<howmuch> do all pay <total>", free=True)
say("loan", ["{n} [borrowed|owes|got|took] ${a} [from {m}|]|{m} [lent|lends] {n} ${a}|the [debt|loan] of {n} [is|was] ${a}|{n} has a [debt|loan] of ${a}",
             "{n} [pays back|returns|gives back|pays] ${p} <month> for {w} months|{n} [pays back|returns|gives back] ${p} <week> for {w} weeks|[for|over] {w} months {n} [pays back|returns] ${p} <month>|{n} [makes|has made] {w} payments of ${p}[| each]"],
    "<howmuch> [does {n} still owe|is still owed|is not paid yet|is left to pay|is still to pay]|what is [the rest|still owed|left of the debt]|<find> the rest of the debt")
say("interest", ["{n} [puts|brings|keeps|has] ${a} in a bank|${a} [lie|are] in a bank|{n} [saves|invests] ${a}|{n} makes a deposit of ${a}",
                 "[the bank|it] pays {p}[%| percent] [simple interest|of it] <year>|[it|the money] [earns|brings|gets] {p}[%| percent] simple interest <year>|the [simple interest|simple rate] is {p}[%| percent] <year>",
                 "[it|the money] stays there [for|] {y} years|{n} waits {y} years|{y} years [go by|pass]"],
    "<howmuch> [money |][is there|does {n} have|is that] [then|after {y} years|in the end]|what is the [total|sum] [then|after {y} years]|<find> the [total|sum] after {y} years")
say("unit_price", ["{b} pounds of {f} [cost|are|come to|are sold for] ${a}|{n} [pays|spends|paid] ${a} for {b} pounds of {f}|for {b} pounds of {f} [one pays|people pay|the shop wants] ${a}",
                   "{n} [wants|needs|buys|orders|takes] {c} pounds|{c} pounds are [needed|bought|ordered]|{n} [buys|needs] {c} pounds [of it|at the same price]"],
    "<howmuch> [do they cost|is that|must {n} pay|does {n} pay|do {c} pounds cost]|what [is the cost|do {c} pounds cost|is the price]|<find> the [cost|price] of {c} pounds")
say("bulk", ["[one|a first|the old] shop [sells|offers] {it} at ${q} <each>|the [normal|usual|old|high] price of the {it} is ${q} <each>|{it} [usually|normally] cost ${q} <each>|[elsewhere|next door] {it} cost ${q} <each>",
             "[another|a second|the new] shop [sells|offers] them at ${p} <each>|the [low|special|sale|new] price is ${p} <each>|{n} [gets|finds] them [at|for] ${p} <each>|{n} pays only ${p} <each>",
             "{n} [buys|needs|takes|orders] {a}[ of them|]|{a} [of them |]are [bought|needed|ordered]"],
    "<howmuch> [does {n} save|is saved|money is saved|can {n} save] [<total>|]|what [does {n} save|is the saving]|<find> [the saving|how much is saved]|<howmuch> [less|cheaper] is it")
say("commission", ["{n} [sells|sold|has sold] {a} {g}s [at|for] ${q} <each>|{a} {g}s [are sold|were sold|go] [at|for] ${q} <each>|a [seller|worker|clerk] sells {a} {g}s at ${q} <each>",
                   "{n} [gets|earns|receives|keeps|is paid] {p}[%| percent] of [the sales|it|that|the sum|all sales]|the commission is {p}[%| percent]|{p}[%| percent] of [the sales|it|the sum] [go|goes|are paid] to {n}|the share of {n} is {p}[%| percent]"],
    "<howmuch> does {n} [earn|get|receive|make]|<howmuch> is [the commission|earned|it]|what [is the commission|does {n} earn]|<find> the [commission|share of {n}]", free=True)
