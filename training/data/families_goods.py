"""Families about counting, sharing and buying things."""
from .family import fam

fam("more", dict(n="name", it="items", a=(3, 900), b=(2, 900)), [("t", "a + b", "total")],
    ["{n} [has|owns|keeps] {a} {it} and [buys|gets|finds] {b} more. How many {it} does {n} have [now|in all|altogether]?",
     "There are {a} {it} [on a table|in a room|in a bag]. {n} [adds|puts in|brings] {b} more. How many {it} are there [now|in total]?",
     "{n} collected {a} {it} [last week|on Monday|in May] and {b} {it} [this week|on Tuesday|in June]. How many {it} did {n} collect [in total|altogether]?",
     "Starting from {a} {it}, {n} receives another {b}. What is the number of {it} that {n} ends up with?"], "{t} {it}")
fam("less", dict(n="name", it="items", b=(2, 800), t0=(2, 900), a="= b + t0"), [("t", "a - b", "left")],
    ["{n} [has|owns] {a} {it} and [gives away|sells|loses] {b}. How many {it} [are left|does {n} still have]?",
     "A box holds {a} {it}. {n} [takes out|removes] {b} of them. How many {it} [remain|stay in the box]?",
     "Of {a} {it}, {b} were [broken|sold|eaten]. How many {it} are left?",
     "{n} started the day with {a} {it}, and by evening {b} were gone. What number of {it} remained?"], "{t} {it} [are left|remain]")
fam("groups", dict(n="name", it="items", a=(3, 40), b=(3, 60)), [("t", "a * b", "total")],
    ["{n} has {a} [boxes|bags|baskets] with {b} {it} [each|in each]. How many {it} does {n} have?",
     "There are {a} [rows|shelves|tables] and each has {b} {it}. How many {it} are there [in all|in total]?",
     "{n} packs {b} {it} into each of {a} boxes. How many {it} are packed?",
     "Each crate contains {b} {it}. If {n} orders {a} crates, how many {it} arrive?"], "{t} {it}")
fam("share", dict(n="name", it="items", b=(2, 12), t0=(3, 150), a="= b * t0"), [("t", "a / b", "each gets")],
    ["{n} shares {a} {it} [equally|evenly] among {b} friends. How many {it} does each friend get?",
     "{a} {it} are put [equally|evenly] into {b} boxes. How many {it} are in [each|one] box?",
     "{n} splits {a} {it} into {b} equal [groups|piles]. How many {it} are in each?",
     "{b} children divide {a} {it} so that all get the same. What does one child receive?"], "{t} {it} each")
fam("two_days_half", dict(n="name", it="items", k=(2, 400), a="= 2 * k"), [("h", "a / 2", "second day"), ("t", "a + h", "total")],
    ["{n} sold {a} {it} on [Monday|Saturday|the first day] and half as many [the next day|on the second day]. How many {it} did {n} sell [in total|altogether]?",
     "On the first day {n} [made|picked|packed] {a} {it}. On the second day {n} did half as many. How many in [total|all]?",
     "{n} read {a} pages in [April|March] and half as many pages the month after. How many pages is that in total?",
     "In week one {a} {it} were counted by {n}; in week two only half that number. How many were counted over both weeks?"], "{t} [in total|in all]")
fam("times_as_many", dict(n="name", m="name", it="items", a=(3, 300), k=(2, 9)), [("b", "a * k", "{m} has"), ("t", "a + b", "together")],
    ["{n} has {a} {it}. {m} has {k} times as many. How many {it} do they have [together|in all]?",
     "{m} owns {k} times as many {it} as {n}, who owns {a}. How many {it} do [they own together|both own]?",
     "{n} [picked|found] {a} {it} and {m} [picked|found] {k} times that many. What is their total?",
     "If {n} holds {a} {it} and {m} holds {k} times the amount of {n}, how many are there between the two of them?"], "{t} together")
fam("more_than", dict(n="name", m="name", it="items", a=(5, 600), d=(2, 300)), [("b", "a + d", "{m} has"), ("t", "a + b", "together")],
    ["{n} has {a} {it}. {m} has {d} more than {n}. How many {it} do they have [together|in total]?",
     "{m} has {d} more {it} than {n}. {n} has {a}. How many {it} do both have?",
     "{n} made {a} {it}; {m} made {d} more than that. How many did they make altogether?",
     "Suppose {n} owns {a} {it} while {m} owns {d} additional ones. What is the combined number?"], "{t} together")
fam("fewer_than", dict(n="name", m="name", it="items", d=(2, 200), b0=(3, 400), a="= d + b0"), [("b", "a - d", "{m} has"), ("t", "a + b", "together")],
    ["{n} has {a} {it}. {m} has {d} fewer than {n}. How many {it} do they have [together|in total]?",
     "{m} has {d} fewer {it} than {n}, who has {a}. How many {it} do both have?",
     "{n} sold {a} {it} and {m} sold {d} fewer. How many {it} did they sell [altogether|in all]?",
     "With {a} {it} for {n} and {d} fewer for {m}, how many is that for the two?"], "{t} together")
fam("buy_change", dict(n="name", g="goods", a=(2, 9), p=(2, 40), d=(5, 90), m="= a * p + d"), [("c", "a * p", "cost"), ("t", "m - c", "left")],
    ["{n} buys {a} {g}s for ${p} each and [pays with|had] ${m}. How much money [does {n} get back|is left]?",
     "A {g} costs ${p}. {n} has ${m} and buys {a} of them. How much money [is left|does {n} have left]?",
     "{n} went to the store with ${m} and bought {a} {g}s at ${p} each. How many dollars [remain|are left]?",
     "Out of ${m}, {n} spends enough for {a} {g}s priced ${p} apiece. What amount remains?"], "${t} left")
fam("two_prices", dict(n="name", g="goods", h="goods", a=(2, 12), p=(2, 60), b=(2, 12), q=(2, 60)),
    [("x", "a * p", "{g}s"), ("y", "b * q", "{h}s"), ("t", "x + y", "total")],
    ["{n} buys {a} {g}s at ${p} each and {b} {h}s at ${q} each. [How much does {n} pay in total|What is the total cost]?",
     "A {g} costs ${p} and a {h} costs ${q}. How much do {a} {g}s and {b} {h}s cost [together|in all]?",
     "At the {g} counter {n} paid ${p} for each of {a} {g}s, then ${q} for each of {b} {h}s. How much was spent?",
     "What does {n} owe for {a} {g}s (${p} apiece) plus {b} {h}s (${q} apiece)?"], "${t} [in total|altogether]")
fam("decimal_price", dict(n="name", it="items", a=(2, 9), p=(0.25, 12, 0.05)), [("t", "a * p", "cost")],
    ["One of the {it} costs ${p}. How much do {a} [of them|{it}] cost?",
     "{n} buys {a} {it} for ${p} each. How much [does {n} pay|is that]?",
     "The price of {it} is ${p} [apiece|each]. What do {a} cost?",
     "For {a} {it} at a unit price of ${p}, what is the bill of {n}?"], "${t}")
fam("decimal_change", dict(n="name", g="goods", h="goods", p=(1, 20, 0.05), q=(1, 20, 0.05), m=[50, 100]),
    [("c", "p + q", "cost"), ("t", "m - c", "change")],
    ["{n} buys a {g} for ${p} and a {h} for ${q} and pays with a ${m} bill. How much change does {n} get?",
     "A {g} is ${p} and a {h} is ${q}. {n} buys both with ${m}. How much is [left|the change]?",
     "From ${m}, {n} spends ${p} on a {g} and ${q} on a {h}. How much is left?",
     "Paying ${m} for a {g} (${p}) and a {h} (${q}), what does {n} get back?"], "${t}")
fam("packs_needed", dict(n="name", it="items", k=(2, 12), g0=(2, 40), h=(2, 60), a="= k * g0 + h"),
    [("r", "a - h", "still needed"), ("t", "r / k", "packs")],
    ["{n} needs {a} {it} and already has {h}. They are sold in packs of {k}. How many packs must {n} buy?",
     "A party needs {a} {it}. {h} are ready, the rest come in boxes of {k}. How many boxes are needed?",
     "{it} come {k} to a pack. {n} has {h} and wants {a}. How many packs does {n} need?",
     "To reach {a} {it} from {h}, how many packs of {k} does {n} have to get?"], "{t} packs")
fam("eat_daily", dict(n="name", it="items", a=(2, 12), d=(3, 30), l=(2, 80), s="= a * d + l"), [("e", "a * d", "used"), ("t", "s - e", "left")],
    ["{n} has {s} {it} and [uses|eats|gives away] {a} each day for {d} days. How many {it} are left?",
     "A store had {s} {it}. It sold {a} a day for {d} days. How many {it} [remain|are left]?",
     "Every day {n} takes {a} {it} from a stock of {s}. How many are there after {d} days?",
     "With a daily use of {a} out of {s} {it}, how many will {n} still have after {d} days?"], "{t} {it} left")
fam("boxes_broken", dict(n="name", it="items", a=(3, 30), b=(4, 48), x=(2, 11)), [("w", "a * b", "packed"), ("t", "w - x", "good")],
    ["{n} received {a} boxes of {b} {it} each, but {x} were broken. How many good {it} are there?",
     "Each of {a} cartons has {b} {it}. If {x} {it} are damaged, how many are [fine|not damaged]?",
     "{a} bags hold {b} {it} each. {n} throws away {x} bad ones. How many {it} are left?",
     "After discarding {x} from {a} crates with {b} {it} apiece, what number of {it} can {n} use?"], "{t} good {it}")
fam("regroup", dict(n="name", it="items", f=(2, 12), u=(2, 9), k=(1, 12), a="= f * k", b="= u"), [("w", "a * b", "in all"), ("t", "w / f", "new boxes")],
    ["{n} has {a} bags with {b} {it} each and puts them all into boxes of {f}. How many boxes are filled?",
     "{a} trays of {b} {it} are repacked into boxes that hold {f}. How many boxes are needed?",
     "There are {a} rows of {b} {it}. {n} makes groups of {f}. How many groups are there?",
     "If {a} sets of {b} {it} get rearranged {f} per box, how many boxes result?"], "{t} boxes")
fam("three_people", dict(n="name", m="name", o="name", it="items", a=(3, 200), k=(2, 6), d=(2, 90)),
    [("b", "a * k", "{m}"), ("c", "b + d", "{o}"), ("t", "a + b + c", "all three")],
    ["{n} has {a} {it}. {m} has {k} times as many as {n}, and {o} has {d} more than {m}. How many {it} do they have [in all|together]?",
     "{m} has {k} times the {it} of {n}. {o} has {d} more than {m}. If {n} has {a}, how many do the three have together?",
     "{n} found {a} {it}, {m} found {k} times as many, and {o} found {d} more than {m}. How many were found?",
     "Three friends keep {it}: {n} keeps {a}, {m} {k} times that, and {o} {d} above {m}. What is the grand total?"], "{t} {it}")
fam("half_of_rest", dict(n="name", m="name", it="items", k=(2, 200), g=(2, 150), a="= 2 * k + g"), [("r", "a - g", "rest"), ("t", "r / 2", "half")],
    ["{n} had {a} {it} and gave {g} to {m}. Then {n} [sold|used] half of the rest. How many {it} are left?",
     "From {a} {it}, {g} were taken away, and half of what was left was [lost|sold]. How many remain?",
     "{n} has {a} {it}. After giving {g} to {m}, {n} puts half of the remaining {it} in a drawer. How many go in the drawer?",
     "{g} of the {a} {it} of {n} go to {m}; half of those still there are then given away. How many stay?"], "{t} {it}")
fam("profit", dict(n="name", it="items", a=(4, 60), c=(1, 20), d=(1, 20), p="= c + d"),
    [("x", "a * p", "income"), ("y", "a * c", "cost"), ("t", "x - y", "profit")],
    ["{n} buys {a} {it} for ${c} each and sells them for ${p} each. [What is the profit|How much profit does {n} make]?",
     "A seller pays ${c} for each of {a} {it} and gets ${p} for each. How much money is [gained|earned]?",
     "Each of {a} {it} costs {n} ${c} and is sold at ${p}. How much does {n} gain in total?",
     "Purchase price ${c}, sale price ${p}, {a} {it}: what gain does {n} make?"], "${t} profit")
fam("dozen", dict(n="name", it="items", a=(2, 30), x=(2, 11)), [("w", "a * 12", "in dozens"), ("t", "w - x", "left")],
    ["{n} bought {a} dozen {it} and used {x}. How many {it} are left?",
     "There are {a} dozen {it} in a shop. {x} are sold. How many {it} [remain|are left]?",
     "{n} bakes {a} dozen {it} and eats {x} of them. How many are left?",
     "If {x} of {a} dozen {it} are spoiled, how many can {n} still use?"], "{t} {it}")
fam("animals_legs", dict(a=(2, 60), b=(2, 60), m=["cows", "sheep", "goats", "horses", "pigs"], o=["hens", "ducks", "geese", "turkeys"]),
    [("x", "a * 4", "legs of {m}"), ("y", "b * 2", "legs of {o}"), ("t", "x + y", "legs")],
    ["A farm has {a} {m} and {b} {o}. How many legs do [they|the animals] have in [all|total]?",
     "There are {a} {m} and {b} {o} in a [field|yard]. How many legs are there?",
     "A farmer keeps {b} {o} and {a} {m}. Count all legs. How many are there?",
     "What is the number of legs of {a} {m} together with {b} {o}?"], "{t} legs")
fam("pages", dict(n="name", p=(5, 60), d=(3, 14), r=(10, 200), w="= p * d + r"), [("x", "p * d", "read"), ("t", "w - x", "left")],
    ["A book has {w} pages. {n} reads {p} pages a day for {d} days. How many pages are left?",
     "{n} reads {p} pages every day. After {d} days, how many of the {w} pages are [left|not read yet]?",
     "{n} has a book of {w} pages and finished {p} pages on each of {d} days. How many pages remain?",
     "Reading {p} pages daily, how many of {w} pages does {n} still face after {d} days?"], "{t} pages")
