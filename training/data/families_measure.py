"""Families about time, distance, weight, area, age and averages."""
from .family import fam

fam("distance", dict(v="vehicle", s=(12, 120), h=(2, 12)), [("t", "s * h", "distance")],
    ["A {v} [goes|travels] {s} kilometers an hour. How far does it go in {h} hours?",
     "A {v} moves at {s} km per hour for {h} hours. What distance is that?",
     "At a speed of {s} miles per hour, how many miles does a {v} cover in {h} hours?",
     "Find the way made by a {v} within {h} hours at {s} km hourly."], "{t}")
fam("two_speeds", dict(v="vehicle", s=(20, 90), h=(2, 9), r=(20, 90), g=(2, 9)), [("x", "s * h", "first part"), ("y", "r * g", "second part"), ("t", "x + y", "total")],
    ["A {v} travels {h} hours at {s} km an hour, then {g} hours at {r} km an hour. How far does it go [in all|in total]?",
     "First a {v} goes {s} miles per hour for {h} hours and then {r} miles per hour for {g} hours. What is the total distance?",
     "For {h} hours the speed of a {v} is {s} km per hour and for {g} more hours it is {r}. How many km is that?",
     "Add up the way of a {v}: {h} hours at {s}, {g} hours at {r} km hourly."], "{t}")
fam("travel_time", dict(v="vehicle", s=[20, 30, 40, 50, 60, 70, 80, 90], h0=(2, 15), d="= s * h0"), [("t", "d / s", "hours")],
    ["A {v} has to go {d} kilometers at {s} km an hour. How many hours does it take?",
     "How long does a {v} need for {d} miles at {s} miles per hour?",
     "At {s} km per hour, how many hours does a {v} take for {d} km?",
     "The trip is {d} km and the {v} makes {s} km hourly. Find the hours."], "{t} hours")
fam("minutes", dict(n="name", h=(1, 9), m=(5, 55, 5)), [("x", "h * 60", "hours in minutes"), ("t", "x + m", "minutes")],
    ["{n} [works|reads|plays] for {h} hours and {m} minutes. How many minutes is that?",
     "A film lasts {h} hours and {m} minutes. How many minutes is it?",
     "How many minutes are {h} hours and {m} minutes?",
     "Express the {h} hours {m} minutes that {n} walked in minutes."], "{t} minutes")
fam("daily_minutes", dict(n="name", a=(10, 90, 5), d=(3, 30)), [("x", "a * d", "minutes"), ("t", "x / 60", "hours")],
    ["{n} practices {a} minutes a day for {d} days. How many hours is that?",
     "Every day {n} runs {a} minutes. How many hours is it in {d} days?",
     "{n} spends {a} minutes daily on homework. How many hours in {d} days?",
     "Over {d} days with {a} minutes each, how many hours does {n} train?"], "{t} hours")
fam("trips", dict(n="name", p="place", d=(2, 40), w=(2, 6), k=(2, 12)), [("x", "d * 2", "both ways"), ("y", "x * w", "a week"), ("t", "y * k", "total")],
    ["The {p} is {d} km from the home of {n}, who goes there and back {w} times a week. How many km is that in {k} weeks?",
     "{n} drives {d} miles to the {p} and {d} miles back, {w} days a week. How many miles in {k} weeks?",
     "A way to the {p} is {d} km. {n} makes {w} round trips a week. How many km in {k} weeks?",
     "In {k} weeks with {w} round trips each to a {p} {d} km off, how far does {n} go?"], "{t}")
fam("area", dict(n="name", a=(3, 60), b=(3, 60)), [("t", "a * b", "area")],
    ["A [garden|room|field] is {a} meters long and {b} meters wide. What is its area?",
     "{n} has a rectangular [yard|floor] of {a} by {b} meters. How many square meters is it?",
     "What is the area of a rectangle with sides {a} and {b}?",
     "{n} paints a wall measuring {a} by {b}. How many square units are painted?"], "{t}")
fam("fence", dict(n="name", a=(3, 90), b=(3, 90), c=(2, 20)), [("x", "a + b", "half"), ("y", "x * 2", "perimeter"), ("t", "y * c", "cost")],
    ["A [garden|field] is {a} meters long and {b} meters wide. A fence costs ${c} a meter. What does a fence all around cost?",
     "{n} fences a rectangle of {a} by {b} meters at ${c} per meter. How much does it cost?",
     "How much is a fence around a {a} by {b} meter yard if one meter costs ${c}?",
     "At ${c} for each meter, what does enclosing a {a} x {b} meter lot cost {n}?"], "${t}")
fam("tiles", dict(n="name", a=(2, 20), b=(2, 20), k=(2, 9), c=(1, 12)), [("x", "a * b", "area"), ("y", "x * k", "tiles"), ("t", "y * c", "cost")],
    ["A floor is {a} by {b} meters. Each square meter needs {k} tiles at ${c} each. What do the tiles cost?",
     "{n} tiles a {a} m by {b} m room with {k} tiles per square meter. One tile costs ${c}. How much is that?",
     "How much do tiles cost for {a} by {b} meters with {k} tiles per square meter at ${c} a tile?",
     "With {k} tiles of ${c} on every square meter, what does a {a} x {b} m floor cost {n}?"], "${t}")
fam("weights", dict(n="name", f="food", g="food", a=(2, 30), p=(0.5, 9, 0.5), b=(2, 30), q=(0.5, 9, 0.5)), [("x", "a * p", "{f}"), ("y", "b * q", "{g}"), ("t", "x + y", "total")],
    ["{n} has {a} bags of {f} of {p} kg each and {b} bags of {g} of {q} kg each. How many kg is that in [all|total]?",
     "A truck carries {a} sacks of {f} at {p} kg and {b} sacks of {g} at {q} kg. What is the total weight?",
     "A bag of {f} weighs {p} kg and a bag of {g} {q} kg. How much do {a} bags of {f} and {b} of {g} weigh?",
     "Find the load of {a} {f} bags ({p} kg each) with {b} {g} bags ({q} kg each)."], "{t} kg")
fam("grams", dict(n="name", f="food", a=(1, 9), g=(100, 900, 50)), [("x", "a * 1000", "kg in grams"), ("t", "x - g", "left")],
    ["{n} has {a} kg of {f} and uses {g} grams. How many grams are left?",
     "From {a} kilograms of {f}, {g} grams are taken. How many grams [remain|are left]?",
     "A sack has {a} kg of {f}. {n} takes {g} g out. How many grams stay in it?",
     "If {g} grams of {a} kg of {f} are used up, what number of grams does {n} have?"], "{t} grams")
fam("liters", dict(n="name", a=(2, 60), m=(100, 900, 50), k=(2, 9)), [("x", "m * k", "used"), ("y", "a * 1000", "in ml"), ("t", "y - x", "left")],
    ["A tank holds {a} liters. {n} fills {k} bottles of {m} ml. How many ml are left?",
     "{n} has {a} liters of juice and pours {k} glasses of {m} ml. How many milliliters remain?",
     "From {a} liters of water, {k} cups of {m} ml are taken. How many ml are left?",
     "After {k} servings of {m} ml from {a} liters, how many ml does {n} have?"], "{t} ml")
fam("recipe", dict(n="name", f="food", it="items", s=(2, 9), u=(0.5, 6, 0.5), k=(2, 12), c="= s * u", d="= s * k"), [("x", "d / s", "batches"), ("t", "x * c", "cups")],
    ["A recipe for {s} {it} needs {c} cups of {f}. How many cups does {n} need for {d} {it}?",
     "{n} uses {c} cups of {f} to make {s} {it}. How many cups are needed for {d}?",
     "For {s} {it} one takes {c} cups of {f}. How many cups for {d} {it}?",
     "Scaling a recipe of {c} cups of {f} per {s} {it} to {d} {it}, how many cups go in?"], "{t} cups")
fam("tank", dict(n="name", r=(3, 60), m=(4, 60), o=(1, 90), s=(10, 200)), [("x", "r * m", "added"), ("y", "s + x", "with start"), ("t", "y - o", "after use")],
    ["A tank has {s} liters. A pipe adds {r} liters a minute for {m} minutes, then {o} liters are used. How much is in the tank?",
     "{n} fills a pool that holds {s} liters of water already with {r} liters per minute for {m} minutes. Then {o} liters leak out. How many liters are there?",
     "{r} liters flow in each minute for {m} minutes to a barrel with {s} liters, then {n} takes {o}. How many liters are left?",
     "Beginning at {s} liters, gaining {r} liters over each of {m} minutes and losing {o}, what does the tank of {n} hold?"], "{t} liters")
fam("age_now", dict(n="name", m="name", a=(5, 40), k=(2, 4), y=(2, 20)), [("b", "a * k", "{m} now"), ("t", "b + y", "{m} later")],
    ["{n} is {a} years old. {m} is {k} times as old. How old will {m} be in {y} years?",
     "{m} is {k} times as old as {n}, who is {a}. What is the age of {m} after {y} years?",
     "{n} is {a}. {m} is {k} times older than that number. In {y} years, how old is {m}?",
     "Knowing that {n} is {a} and {m} {k} times that age, tell the age of {m} {y} years on."], "{t} years")
fam("age_sum", dict(n="name", m="name", a=(5, 60), d=(2, 20), y=(2, 15)), [("b", "a + d", "{m} now"), ("c", "a + b", "sum now"), ("e", "y * 2", "added"), ("t", "c + e", "sum later")],
    ["{n} is {a} years old and {m} is {d} years older. What is the sum of their ages in {y} years?",
     "{m} is {d} years older than {n}, who is {a}. How old will both be together in {y} years?",
     "{n} is {a}. {m} is {d} years older. In {y} years, what do their ages add up to?",
     "When {y} years have passed, what will be the total age of {n} ({a} now) and {m} ({d} years older)?"], "{t}")
fam("average", dict(n="name", a=(40, 100), b=(40, 100), c=(40, 100)), [("s", "a + b + c", "sum"), ("t", "s / 3", "average")],
    ["{n} scored {a}, {b} and {c} in three tests. What is the average?",
     "What is the mean of {a}, {b} and {c}?",
     "The marks of {n} are {a}, {b} and {c}. Find the average mark.",
     "On three days {n} walked {a}, {b} and {c} minutes. How many minutes is that on average?"], "{t}")
fam("average_four", dict(n="name", it="items", a=(10, 200), b=(10, 200), c=(10, 200), d=(10, 200)), [("s", "a + b + c + d", "sum"), ("t", "s / 4", "average")],
    ["{n} sold {a}, {b}, {c} and {d} {it} on four days. What is the daily average?",
     "On four days {a}, {b}, {c} and {d} {it} were made. How many is that on average a day?",
     "What is the average of {a}, {b}, {c} and {d}?",
     "Find the mean number of {it} if the counts of {n} were {a}, {b}, {c}, {d}."], "{t}")
fam("missing_score", dict(n="name", g=(50, 95), a=(40, 100), b=(40, 100)), [("s", "g * 3", "needed sum"), ("u", "a + b", "so far"), ("t", "s - u", "third")],
    ["{n} scored {a} and {b}. What must {n} score in the third test for an average of {g}?",
     "The average of three tests is {g}. Two of them are {a} and {b}. What is the third?",
     "{n} wants an average of {g} over three games and has {a} and {b} points. How many points are needed in the last game?",
     "With {a} and {b} so far, which third result brings the mean of {n} to {g}?"], "{t}")
fam("machine", dict(n="name", it="items", a=(5, 90), h=(2, 12), m=(2, 9)), [("x", "a * h", "one machine"), ("t", "x * m", "all machines")],
    ["A machine makes {a} {it} an hour. How many {it} do {m} machines make in {h} hours?",
     "{m} machines work {h} hours and each makes {a} {it} per hour. How many {it} are made?",
     "Each of {m} workers packs {a} {it} an hour. How many {it} in {h} hours?",
     "With an output of {a} {it} hourly, what do {m} machines yield over {h} hours?"], "{t} {it}")
fam("rate_finish", dict(n="name", it="items", a=(3, 40), h0=(2, 30), d=(2, 60), w="= a * h0 + d"), [("x", "w - d", "to do"), ("t", "x / a", "hours")],
    ["{n} must [pack|paint|wash] {w} {it}. {d} are done. At {a} an hour, how many hours are needed?",
     "Of {w} {it}, {d} are finished. {n} makes {a} per hour. How many more hours does it take?",
     "{n} makes {a} {it} an hour, needs {w} and has {d}. How many hours are left?",
     "At a pace of {a} hourly, how long does {n} need from {d} up to {w} {it}?"], "{t} hours")
fam("temperature", dict(c="city", a=(10, 40), r=(2, 20), f=(2, 9)), [("x", "a + r", "noon"), ("t", "x - f", "evening")],
    ["In {c} it was {a} degrees in the morning. It rose {r} degrees by noon and fell {f} by evening. What was it in the evening?",
     "The temperature in {c} starts at {a}, goes up by {r} and then down by {f}. What is it now?",
     "It is {a} degrees in {c}. After a rise of {r} and a drop of {f}, how many degrees is it?",
     "Climbing {r} from {a} and then sinking {f}, what does the thermometer in {c} show?"], "{t} degrees")
