"""Families about groups of people, fractions, farms and counting with several conditions."""
from .family import fam

fam("fraction_of", dict(n="name", it="items", k=(2, 9), u=(2, 120), a="= k * u"), [("x", "a / k", "one part"), ("t", "a - x", "left")],
    ["{n} has {a} {it} and gives 1/{k} of them away. How many are left?",
     "1/{k} of {a} {it} were [sold|eaten]. How many {it} [remain|are left]?",
     "From {a} {it}, one part in {k} is broken. How many are not broken?",
     "Having handed out 1/{k} of {a} {it}, what does {n} retain?"], "{t} {it}")
fam("fraction_more", dict(n="name", it="items", k=(3, 9), j=(2, 8), u=(2, 90), a="= k * u"), [("x", "a / k", "one part"), ("t", "x * j", "{j} parts")],
    ["{n} has {a} {it}. {j}/{k} of them are [red|new|large]. How many is that?",
     "{j}/{k} of {a} {it} are sold. How many are sold?",
     "What is {j}/{k} of {a} {it}?",
     "How many of {a} {it} did {n} use when {j}/{k} were used?"], "{t} {it}")
fam("bus", dict(a=(10, 60), o=(2, 9), i=(3, 30), p=(2, 8), j=(2, 30)), [("x", "a - o", "after first stop out"), ("y", "x + i", "after first stop in"), ("z", "y - p", "after second out"), ("t", "z + j", "after second in")],
    ["A bus has {a} people. At the first stop {o} get off and {i} get on. At the second {p} get off and {j} get on. How many people are on the bus?",
     "{a} people are on a train. First {o} leave and {i} enter, then {p} leave and {j} enter. How many are on it now?",
     "There are {a} passengers. {o} get out and {i} get in, later {p} get out and {j} get in. How many passengers are there?",
     "After two stops, with {o} out and {i} in and then {p} out and {j} in, how many of the first {a} and later riders sit in the bus?"], "{t} people")
fam("rows_seats", dict(p="place", r=(5, 60), s=(5, 60), e=(5, 90)), [("x", "r * s", "seats"), ("t", "x - e", "taken")],
    ["A [hall|theater] has {r} rows of {s} seats. {e} seats are empty. How many people are seated?",
     "There are {r} rows with {s} chairs each and {e} are free. How many chairs are taken?",
     "A hall of {r} rows with {s} seats each has {e} empty seats. How many are taken?",
     "If {e} seats stay empty in {r} rows of {s}, how many visitors came?"], "{t}")
fam("classes", dict(c=(2, 20), s=(12, 35), t0=(2, 30)), [("x", "c * s", "students"), ("t", "x + t0", "people")],
    ["A school has {c} classes of {s} students and {t0} teachers. How many people are [there|in the school]?",
     "{c} classes with {s} children each and {t0} teachers go on a trip. How many people go?",
     "On a trip there are {t0} teachers and {c} classes with {s} students each. How many people is that?",
     "Counting {t0} teachers, how many people are in {c} classes of {s} pupils?"], "{t} people")
fam("buses_needed", dict(s=(10, 40), b0=(2, 20), t0=(2, 30), a="= s * b0 - t0"), [("x", "a + t0", "people"), ("t", "x / s", "buses")],
    ["{a} students and {t0} teachers go by bus. A bus seats {s}. How many full buses are needed?",
     "A trip has {a} children and {t0} adults. Each bus takes {s} people. How many buses are needed?",
     "Buses with {s} seats carry {a} students and {t0} teachers. How many buses are filled?",
     "How many coaches for {s} riders each will {a} pupils with {t0} teachers fill?"], "{t} buses")
fam("boys_girls", dict(p="place", d=(2, 60), g=(5, 300), b="= g + d"), [("x", "b - d", "girls"), ("t", "b + x", "children")],
    ["There are {b} boys [at the {p}|in a club] and {d} fewer girls. How many children are there?",
     "A school has {b} boys. There are {d} fewer girls than boys. How many students are there [in all|in total]?",
     "{b} boys came to the {p} and {d} fewer girls came. How many children came?",
     "With girls numbering {d} below the {b} boys, how many children visit the {p}?"], "{t} children")
fam("votes", dict(n="name", m="name", p=(5, 45, 5), k=(2, 60), a="= 20 * k"), [("x", "a % p", "{n}"), ("y", "a - x", "{m}"), ("t", "y - x", "difference")],
    ["{a} people vote. {n} gets {p}% and {m} gets all other votes. By how many votes does {m} win?",
     "In a vote of {a} people {n} has {p}% and {m} the rest. How many more votes does {m} have?",
     "{n} got {p}% of {a} votes, {m} got the rest. What is the difference in votes?",
     "Of {a} ballots {p} percent name {n}, the others {m}. How far ahead is {m}?"], "{t} votes")
fam("orchard", dict(n="name", f=["apple", "pear", "plum", "peach", "lemon", "cherry"], r=(3, 40), s=(3, 40), k=(5, 90)), [("x", "r * s", "trees"), ("t", "x * k", "fruits")],
    ["An orchard has {r} rows of {s} {f} trees. Each tree gives {k} fruits. How many fruits is that?",
     "{n} has {r} rows with {s} {f} trees and picks {k} fruits from each tree. How many fruits are picked?",
     "In {r} rows of {s} {f} trees every tree bears {k} fruits. How many fruits are there?",
     "What crop do {r} rows of {s} {f} trees give at {k} fruits a tree?"], "{t} fruits")
fam("eggs_sold", dict(n="name", h=(3, 60), e=(2, 7), u=(1, 9), p=(0.1, 1, 0.05)), [("x", "h * e", "eggs"), ("y", "x - u", "to sell"), ("t", "y * p", "money")],
    ["{n} has {h} hens that lay {e} eggs each a week. {n} eats {u} eggs and sells the rest at ${p} each. How much money is that?",
     "{h} hens lay {e} eggs each. {n} keeps {u} and sells the others for ${p} apiece. How much does {n} get?",
     "Each of {h} hens lays {e} eggs. {u} break and the rest are sold for ${p} each. What is earned?",
     "Selling at ${p} all but {u} of the eggs from {h} hens with {e} eggs each, what does {n} earn?"], "${t}")
fam("herd", dict(n="name", m="animals", o="animals", a=(5, 200), k=(2, 6), d=(2, 50)), [("b", "a * k", "{o}"), ("c", "a + b", "both"), ("t", "c - d", "left")],
    ["{n} has {a} {m} and {k} times as many {o}. {d} animals are sold. How many are left?",
     "A farm keeps {a} {m} and {k} times as many {o}, then sells {d} animals. How many animals remain?",
     "There are {k} times as many {o} as {m} on a farm with {a} {m}. After {d} animals leave, how many are there?",
     "Owning {a} {m} plus {k} times that in {o}, how many animals does {n} keep on selling {d}?"], "{t} animals")
fam("feed", dict(n="name", m="animals", a=(3, 60), k=(2, 12), d=(3, 30)), [("x", "a * k", "a day"), ("t", "x * d", "in all")],
    ["{n} has {a} {m}. Each eats {k} kg a day. How many kg do they eat in {d} days?",
     "Each of {a} {m} needs {k} kg of feed daily. How much feed is needed for {d} days?",
     "{a} {m} eat {k} kg each per day. How many kg is that in {d} days?",
     "What feed in kg must {n} store for {a} {m} during {d} days at {k} kg each?"], "{t} kg")
fam("points", dict(n="name", a=(2, 20), b=(2, 20), c=(2, 20)), [("x", "a * 3", "threes"), ("y", "b * 2", "twos"), ("t", "x + y + c", "points")],
    ["{n} made {a} three-point shots, {b} two-point shots and {c} free throws of one point. How many points is that?",
     "In a game {n} hit {a} threes, {b} twos and {c} ones. How many points did {n} score?",
     "A team scores {a} shots of 3 points, {b} of 2 and {c} of 1. What is the score?",
     "Give the points of {n} for {b} two-pointers, {a} three-pointers and {c} singles."], "{t} points")
fam("goals", dict(n="name", a=(2, 40), k=(2, 5), d=(1, 20)), [("b", "a * k", "second season"), ("c", "b - d", "third season"), ("t", "a + b + c", "total")],
    ["{n} scored {a} goals in the first season, {k} times as many in the second, and {d} fewer in the third than in the second. How many goals is that?",
     "{a} goals in year one, {k} times as many in year two, {d} fewer than year two in year three. How many goals in all?",
     "In season one {n} scored {a}. Season two had {k} times that and season three {d} fewer than season two. What is the total?",
     "Total the goals of {n}: first {a}, next {k} times that, last {d} below the second."], "{t} goals")
fam("letters", dict(n="name", a=(2, 12), p=(2, 9), w=(2, 30)), [("x", "a * p", "a week"), ("t", "x * w", "pages")],
    ["{n} writes a {p}-page letter to {a} friends every week. How many pages is that in {w} weeks?",
     "Every week {n} sends {a} letters of {p} pages. How many pages in {w} weeks?",
     "{a} letters a week, {p} pages each, for {w} weeks: how many pages does {n} write?",
     "Over {w} weeks {n} mails {p} pages to each of {a} friends weekly. Count the pages."], "{t} pages")
fam("both_kinds", dict(n="name", it="items", x0=(2, 90), y0=(2, 90), z0=(2, 90), a="= x0 + y0 + z0"), [("u", "x0 + y0", "red and blue"), ("t", "a - u", "green")],
    ["{n} has {a} {it}: {x0} are red, {y0} are blue and the rest are green. How many are green?",
     "Of {a} {it}, {x0} are old, {y0} are new and the others are broken. How many are broken?",
     "A box of {a} {it} has {x0} white ones, {y0} black ones and the rest gray. How many are gray?",
     "Without {x0} large and {y0} small ones, how many of the {a} {it} of {n} are medium?"], "{t}")
fam("swap", dict(n="name", m="name", it="items", g=(2, 60), a0=(3, 200), b=(3, 200), a="= a0 + g"), [("x", "a - g", "{n}"), ("y", "b + g", "{m}"), ("t", "x + y", "together")],
    ["{n} has {a} {it} and {m} has {b}. {n} gives {g} to {m}. How many do they have together [now|then]?",
     "{m} has {b} {it}, {n} has {a}. After {n} gives {m} {g}, how many do both have in all?",
     "{n} with {a} {it} hands {g} over to {m}, who had {b}. What is their total?",
     "Once {g} of {a} {it} pass from {n} to {m} (owner of {b}), what do the two own?"], "{t} {it}")
fam("twice_then_give", dict(n="name", m="name", it="items", a=(5, 200), k=(2, 4), g=(2, 9), f=(2, 5)), [("x", "a * k", "after growth"), ("y", "g * f", "given"), ("t", "x - y", "left")],
    ["{n} had {a} {it}, which became {k} times as many. Then {n} gave {g} to each of {f} friends. How many are left?",
     "The {a} {it} of {n} grew to {k} times as many and {f} friends got {g} each. How many does {n} have?",
     "{n} multiplied {a} {it} by {k} and gave {f} friends {g} each. How many remain?",
     "After growing {a} {it} {k}-fold and handing {g} to each of {f} friends, what has {n}?"], "{t} {it}")
fam("queue", dict(p="place", a=(5, 90), s=(2, 9), m=(2, 9), l=(2, 40)), [("x", "s * m", "served"), ("y", "a + l", "came"), ("t", "y - x", "waiting")],
    ["{a} people wait at the {p}. {l} more come. {s} people are served each minute for {m} minutes. How many still wait?",
     "At the {p} {a} people stand in line and {l} join. In {m} minutes {s} people a minute are served. How many are in line?",
     "A line has {a} people, {l} join it, and {s} leave it every minute for {m} minutes. How many are left?",
     "With {s} served in each of {m} minutes, how long a line stays from {a} people and {l} newcomers at the {p}?"], "{t} people")
