"""Compact wordings of the families about counting, sharing and buying things."""
from .compact import brief

brief("more", "[Adding|With] {b} [more|further] {it} [to the {a} that {n} has|on top of {a}], how many [does {n} have|are there|is that]?",
      "How many {it} do {a} and {b} [more|others] make[ for {n}|]?", "{n} [puts|lays] {b} {it} to the {a} [already there|in the drawer]. How many are there <now>?",
      "To {a} {it} {n} adds {b}. [Find the total.|How many is that?]", "{a} {it} yesterday, {b} today: how many [has|had] {n} [made|seen|got] [<total>|]?")
brief("less", "[If|When] {n} <loses> {b} of {a} {it}, how many <left>?", "How many of {a} {it} [remain|are left] when {b} [are gone|are lost|get sold]?",
      "From a [heap|pile|stock] of {a} {it} {n} [takes|removes] {b}. How many [stay|are still there]?", "{b} out of {a} {it} [break|are eaten|get lost]. How many <left>?",
      "Taking {b} {it} [away from|off] {a}, how many does {n} keep?")
brief("groups", "How many {it} are in {a} <box> [of|with] {b}[ each|]?", "{b} {it} go into [every|each] <abox>, and {n} [fills|has|carries] {a} of them. How many {it} is that?",
      "With {b} {it} in each of {a} <box>, how many [does {n} have|are there <total>]?", "{a} <box>, [each with|every one with|holding] {b} {it}[ each|]: [what is the total|how many {it}]?",
      "At {b} {it} [per|to a|for each] <abox>, how many are in {a} <box>?")
brief("share", "How many {it} does each of {b} [friends|people|<kids>] get [from|out of] {a}?", "{b} [people|friends|<kids>] get the same number of {it} from {a}. How many [is that each|for one]?",
      "[Sharing|Dividing] {a} {it} [fairly|equally] [among|between] {b} [people|<box>], how many [go|come] to each?", "Into {b} <box> {n} puts {a} {it}, the same number in each. How many are in one?",
      "{a} {it} for {b} [people|<kids>]: how many each?")
brief("two_days_half", "[Yesterday|On Friday|In autumn] it was {a} {it} and [today|on Sunday|in winter] half [of that|as many]. How many did {n} [have|get] <total>?",
      "How many {it} did {n} [see|sell|make] with {a} on one day and half as many on the other?", "{n} [packed|picked] {a} {it}, then half [of that number|as many] again. How many [is that|<total>]?",
      "First {a}, [then|later] half as many: how many {it} [is that|did {n} count] [<total>|]?")
brief("times_as_many", "With {a} {it} for {n} and {k} times as many for {m}, how many do [both|they] have?", "How many {it} do {n} and {m} have if {n} has {a} and {m} {k} times that?",
      "{n} and {m} have {it}: {n} {a}, {m} {k} times as many. How many [together|<total>]?", "{m} [has|counts] {k} times the {a} {it} of {n}. What do <two> have together?", "If {m} has {k} times as many {it} as the {a} of {n}, what is the sum?")
brief("more_than", "{n} and {m} have {it}: {n} {a} and {m} {d} more. How many [together|<total>]?", "How many {it} do {n} and {m} have if {n} has {a} and {m} has {d} more?",
      "{m} [beats|tops] the {a} {it} of {n} by {d}. How many do <two> have?", "[Having|Owning] {d} {it} more than {n} with {a}, {m} joins {n}. How many have they together?", "{a} {it} [belong to|are with] {n}, {d} more [than that |]to {m}. What is the sum?")
brief("fewer_than", "{n} and {m} have {it}: {n} {a} and {m} {d} [fewer|less]. How many [together|<total>]?", "How many {it} do {n} and {m} have if {n} has {a} and {m} has {d} [fewer|less]?",
      "{m} is {d} {it} short of the {a} of {n}. How many do <two> have?", "{a} {it} [belong to|are with] {n}, {d} fewer [than that |]to {m}. What is the sum?", "If {m} has {d} {it} fewer than {n} and {n} has {a}, how many are that?")
brief("buy_change", "How much of ${m} is left after {a} {g}s at ${p} <each>?", "{n} [takes|carries] ${m} to a [shop|market] and comes home with {a} {g}s of ${p} each. How much money is left?",
      "[Buying|Paying for] {a} {g}s at ${p} <each>, how much of ${m} does {n} keep?", "[Each|One] of {a} {g}s costs ${p}, and {n} pays with ${m}. What is the change?", "At ${p} for a {g}, {n} buys {a} and gives ${m}. How much comes back?")
brief("two_prices", "How much are {a} {g}s at ${p} and {b} {h}s at ${q}?", "{n} [pays|spent|gives] ${p} <each> for {a} {g}s and ${q} <each> for {b} {h}s. What is [the sum|the cost|that <total>]?",
      "With {g}s at ${p} and {h}s at ${q}, what do {a} {g}s and {b} {h}s cost?", "{n} buys {a} {g}s and {b} {h}s. A {g} is ${p}, a {h} ${q}. [How much is it|What is the bill]?",
      "For ${p} each {n} gets {a} {g}s and for ${q} each {b} {h}s. How much does {n} pay?", "{b} {h}s for ${q} each [and|plus] {a} {g}s for ${p} each: how much [is|does {n} pay for] all?")
brief("decimal_price", "How much does {n} pay for {a} {it} at ${p} <each>?", "With {it} at ${p} <each>, [how much|what] do {a} cost {n}?", "{n} [takes|wants|orders] {a} {it}, ${p} each. What is [the cost|to pay]?", "{a} times {it} for ${p}: how much is that?")
brief("decimal_change", "How much of ${m} is left after a {g} [for|at] ${p} and a {h} [for|at] ${q}?", "{n} [gives|hands over] ${m} for ~a {g} at ${p}~a {h} at ${q}~. What is the change?",
      "With ${m} {n} buys a {g} and a {h} for ${p} and ${q}. What comes back?", "A {h} at ${q} and a {g} at ${p} are paid with ${m}. How much [change is there|is given back]?")
brief("packs_needed", "How many packs of {k} does {n} [need|buy] to have {a} {it} when {h} are there?", "[Owning|Having] {h} of the {a} {it} needed, {n} buys packs [of|with] {k}. How many packs?",
      "{n} wants {a} {it}, has {h}, and a pack holds {k}. How many packs are needed?", "In packs of {k}, {n} buys what is missing from {h} to {a} {it}. How many packs is that?")
brief("eat_daily", "How many of {s} {it} are left after {d} days with {a} [used|eaten|sold] a day?", "{n} <loses> {a} of {s} {it} <day>. How many are left {d} days later?", "For {d} days {n} takes {a} {it} <day> from {s}. How many <left>?",
      "{a} {it} <day> go from {s}, {d} days long. What is left?", "At {a} <day> for {d} days, what stays of {s} {it}?")
brief("boxes_broken", "How many good {it} are in {a} <box> of {b} when {x} are [bad|broken]?", "[Without|Not counting] {x} broken ones, how many {it} are in {a} <box> with {b} each?", "{x} {it} in {a} <box> of {b} are [bad|rotten|broken]. How many are [good|fine]?",
      "{n} has {a} <box> with {b} {it} each, {x} of them [bad|broken]. How many are good?")
brief("regroup", "How many boxes of {f} can {n} fill from {a} bags [of|with] {b} {it}?", "{n} fills boxes with {f} {it} each from {a} bags of {b}. How many boxes?", "[Moving|Putting] {it} from {a} <box> of {b} into bags of {f}, how many bags does {n} get?",
      "{a} times {b} {it}, sorted into sets of {f}: how many sets?")
brief("three_people", "{n}, {m} and {o} have {it}: {n} {a}, {m} {k} times that and {o} {d} more than {m}. How many <total>?", "How many {it} do three people have if {n} has {a}, {m} {k} times as many and {o} {d} more than {m}?",
      "{o} has {d} {it} more than {m}, {m} {k} times as many as {n}, and {n} {a}. What is the sum?", "With {a} {it} for {n}, {k} times as many for {m} and for {o} {d} more than for {m}, how many is that?")
brief("half_of_rest", "{n} keeps half of what is left of {a} {it} when {g} [go|are given] to {m}. How many is that?", "{m} gets {g} of {a} {it} from {n}, and half of the others are [sold|lost]. How many <left>?",
      "How many {it} are left of {a} if {n} gives {m} {g} and [sells|loses] half of the rest?", "First {g} of {a} {it} go, [then|later] half of the rest. What does {n} have <now>?")
brief("profit", "How much does {n} [earn|win] with {a} {it} bought at ${c} and sold at ${p} <each>?", "{n} sells for ${p} <each> what cost ${c} <each>: {a} {it}. What is the profit?", "[Buying|Getting] {a} {it} at ${c} and selling at ${p} <each>, what profit does {n} make?",
      "{a} {it} go for ${p} each after {n} [bought|got] them for ${c} each. How much is the gain?", "Sold at ${p} and bought at ${c}, what do {a} {it} bring {n}?")
brief("dozen", "How many of {a} dozen {it} are left when {x} are [sold|gone|bad]?", "{x} are taken from {a} dozen {it}. How many <left>?", "{n} <loses> {x} out of {a} dozen {it}. How many does {n} keep?", "[Without|Not counting] {x}, how many are {a} dozen {it}?")
brief("animals_legs", "How many legs do {a} {m} and {b} {o} have?", "{b} {o} and {a} {m} [walk|live|stand] [on a farm|in a park|there]. How many legs [is that|have they]?", "With {a} {m} next to {b} {o}, how many legs are in the [field|barn]?",
      "[Count|Find] the legs of {b} {o} and {a} {m}.", "{o} and {m}: {b} and {a}. How many legs <total>?")
brief("pages", "How many pages are left of {w} after {d} days with {p} pages [each|a day]?", "For {d} days {n} reads {p} of {w} pages <day>. How many <left>?", "{n} reads {p} pages <day> of a book with {w}. How many pages are left {d} days later?",
      "At {p} pages <day>, what is left of {w} pages {d} days later?")
