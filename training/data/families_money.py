"""Families about wages, saving, percent and prices."""
from .family import fam

fam("wage", dict(n="name", j="job", p=(8, 60), h=(3, 50)), [("t", "p * h", "pay")],
    ["{n} works as a {j} for ${p} an hour. How much does {n} earn in {h} hours?",
     "A {j} earns ${p} per hour and works {h} hours. What is the pay?",
     "{n} is paid ${p} for every hour. After {h} hours, how much [money is that|has {n} earned]?",
     "At an hourly rate of ${p}, what do {h} hours bring the {j} {n}?"], "${t}")
fam("wage_week", dict(n="name", j="job", p=(8, 40), h=(2, 9), d=(2, 6), s=(5, 90)),
    [("x", "h * d", "hours"), ("y", "x * p", "pay"), ("t", "y - s", "left")],
    ["{n}, a {j}, earns ${p} an hour and works {h} hours a day for {d} days. {n} spends ${s}. How much is left?",
     "{n} works {d} days, {h} hours each day, at ${p} an hour, then pays ${s} for [food|travel|a gift]. How much money is left?",
     "For {d} days a {j} works {h} hours daily at ${p} per hour. After paying ${s}, how much remains?",
     "What remains of the wage for {d} days of {h} hours at ${p} hourly once {n} pays ${s}?"], "${t} left")
fam("save_weeks", dict(n="name", g="goods", w=(3, 60), k=(2, 40), h=(5, 200), c="= w * k + h"), [("r", "c - h", "needed"), ("t", "r / w", "weeks")],
    ["{n} wants a {g} that costs ${c}. {n} has ${h} and saves ${w} a week. How many weeks [does it take|are needed]?",
     "A {g} costs ${c}. With ${h} already saved and ${w} more each week, after how many weeks can {n} buy it?",
     "{n} has ${h} and puts aside ${w} every week for a ${c} {g}. How many weeks must {n} save?",
     "Saving ${w} weekly on top of ${h}, how long until {n} reaches the ${c} for a {g}?"], "{t} weeks")
fam("percent_of", dict(n="name", it="items", p=(5, 95, 5), k=(1, 60), a="= 20 * k"), [("t", "a % p", "{p} percent")],
    ["{n} has {a} {it}. {p}% of them are [red|new|old|broken]. How many is that?",
     "What is {p}% of {a} {it}?",
     "A shop has {a} {it} and sells {p}%. How many {it} are sold?",
     "Of the {a} {it} that {n} counted, {p} percent were blue. How many blue ones were there?"], "{t} {it}")
fam("percent_left", dict(n="name", it="items", p=(5, 90, 5), k=(2, 90), a="= 20 * k"), [("x", "a % p", "gone"), ("t", "a - x", "left")],
    ["{n} has {a} {it} and [sells|gives away] {p}% of them. How many {it} are left?",
     "A store had {a} {it}. {p}% were sold. How many {it} [remain|were not sold]?",
     "{p}% of {a} {it} are [broken|damaged]. How many are fine?",
     "After losing {p} percent of {a} {it}, how many does {n} keep?"], "{t} {it} left")
fam("discount", dict(n="name", g="goods", p=(5, 60, 5), k=(1, 40), a="= 20 * k"), [("x", "a % p", "discount"), ("t", "a - x", "price")],
    ["A {g} costs ${a}. It is [on sale|reduced] with {p}% off. What is the [new|sale] price?",
     "{n} gets a {p}% discount on a {g} of ${a}. How much does {n} pay?",
     "The price of a {g} is ${a} and drops by {p}%. How much does it cost now?",
     "With {p} percent taken off its ${a} tag, what will {n} spend on the {g}?"], "${t}")
fam("price_rise", dict(g="goods", p=(5, 60, 5), k=(1, 60), a="= 20 * k"), [("x", "a % p", "increase"), ("t", "a + x", "price")],
    ["A {g} costs ${a}. The price [rises|goes up] by {p}%. What is the new price?",
     "The price of a {g} was ${a} and grew by {p}%. How much does it cost now?",
     "A shop raises the ${a} price of a {g} by {p}%. What is it now?",
     "If a ${a} {g} becomes {p} percent dearer, what must one pay?"], "${t}")
fam("tip", dict(n="name", a=(20, 200, 10), b=(20, 100, 10), p=[5, 10, 15, 20]), [("c", "a + b", "meal"), ("x", "c % p", "tip"), ("t", "c + x", "total")],
    ["A meal costs ${a} for food and ${b} for drinks. {n} adds a {p}% tip. How much does {n} pay in total?",
     "{n} pays ${a} for food, ${b} for drinks and a tip of {p}% of both. What is the total?",
     "Food is ${a} and drinks are ${b}. With a {p}% tip on the sum, how much is the bill?",
     "The dinner of {n} comes to ${a} plus ${b}, and a {p} percent tip goes on top. What is spent?"], "${t}")
fam("tax", dict(n="name", g="goods", a=(2, 9), q=(10, 90, 10), p=[5, 10, 15, 20, 25]), [("c", "a * q", "price"), ("x", "c % p", "tax"), ("t", "c + x", "total")],
    ["{n} buys {a} {g}s at ${q} each. A tax of {p}% is added. How much does {n} pay?",
     "{a} {g}s cost ${q} each, plus {p}% tax. What is the total?",
     "The tax is {p}%. What does {n} pay for {a} {g}s at ${q} each with tax?",
     "Including {p} percent tax, what do {a} {g}s priced ${q} come to?"], "${t}")
fam("split_bill", dict(n="name", f=(2, 8), u=(2, 50), x=(5, 80), s="= f * u", a="= s + x"), [("c", "a - x", "to split"), ("t", "c / f", "each pays")],
    ["A bill is ${a}. A coupon takes off ${x} and {f} friends split the rest [equally|evenly]. How much does each pay?",
     "{f} people share a ${a} bill equally after ${x} off. What does each one pay?",
     "{n} and friends, {f} people in all, owe ${a}. {n} first pays ${x} alone, then all {f} split the rest equally. How much is one share?",
     "With ${x} deducted from ${a} and the remainder divided by {f} people, what is one part?"], "${t} each")
fam("coins", dict(n="name", a=(2, 40), b=(2, 40), c=(2, 40)), [("x", "a * 25", "quarters"), ("y", "b * 10", "dimes"), ("z", "c * 5", "nickels"), ("t", "x + y + z", "cents")],
    ["{n} has {a} quarters, {b} dimes and {c} nickels. How many cents is that?",
     "A jar holds {a} quarters, {b} dimes and {c} nickels. What is it worth in cents?",
     "{n} counts {b} dimes, {a} quarters and {c} nickels. How many cents are there in all?",
     "In cents, what do {c} nickels, {b} dimes and {a} quarters make?"], "{t} cents")
fam("bills", dict(n="name", a=(2, 20), b=(2, 20), c=(2, 30)), [("x", "a * 20", "twenties"), ("y", "b * 10", "tens"), ("z", "c * 5", "fives"), ("t", "x + y + z", "dollars")],
    ["{n} has {a} twenty-dollar bills, {b} ten-dollar bills and {c} five-dollar bills. How much money is that?",
     "A wallet has {a} $20 bills, {b} $10 bills and {c} $5 bills. How many dollars are in it?",
     "{n} pays with {a} twenties, {b} tens and {c} fives. How much does {n} pay?",
     "Sum up {c} fives, {b} tens and {a} twenties held by {n}. How many dollars?"], "${t}")
fam("allowance", dict(n="name", a=(5, 60), w=(2, 30), s=(2, 90), b=(2, 50)), [("x", "a * w", "allowance"), ("y", "x + b", "with gift"), ("t", "y - s", "left")],
    ["{n} gets ${a} a week for {w} weeks and a gift of ${b}, then spends ${s}. How much money is left?",
     "For {w} weeks {n} saves ${a} a week. An aunt gives ${b} more and {n} buys a game for ${s}. How much does {n} have?",
     "{n} saves ${a} each week. After {w} weeks {n} also gets ${b} and pays ${s}. How much remains?",
     "Weekly savings of ${a} over {w} weeks, ${b} as a present, ${s} spent: what does {n} hold?"], "${t}")
fam("rent", dict(n="name", r=(300, 1500, 50), m=(2, 12), d=(100, 900, 50)), [("x", "r * m", "rent"), ("t", "x + d", "total")],
    ["{n} pays ${r} rent a month and a deposit of ${d}. How much does {n} pay for {m} months [in all|with the deposit]?",
     "Rent is ${r} per month. With a ${d} deposit, how much are {m} months?",
     "A flat costs ${r} a month. {n} stays {m} months and also pays ${d} once. What is the total?",
     "Adding the one-time ${d}, what do {m} months at ${r} cost {n}?"], "${t}")
fam("phone_plan", dict(n="name", b=(5, 40), p=(0.05, 0.5, 0.05), m=(10, 90, 10)), [("x", "p * m", "calls"), ("t", "b + x", "total")],
    ["A phone plan costs ${b} plus ${p} per minute. {n} talks {m} minutes. How much does {n} pay?",
     "{n} pays a fixed ${b} and ${p} for each of {m} minutes. What is the bill?",
     "Each minute costs ${p} and the base fee is ${b}. How much are {m} minutes?",
     "What is charged to {n} for {m} minutes at ${p} with a base of ${b}?"], "${t}")
fam("tickets", dict(n="name", a=(2, 40), p=(5, 30), c=(2, 60), q=(2, 15)), [("x", "a * p", "adults"), ("y", "c * q", "children"), ("t", "x + y", "total")],
    ["Tickets cost ${p} for adults and ${q} for children. How much do {a} adults and {c} children pay?",
     "A group of {a} adults and {c} children visits a zoo. Adults pay ${p}, children ${q}. What is the total?",
     "{n} sells {a} adult tickets at ${p} and {c} child tickets at ${q}. How much money [comes in|is collected]?",
     "The fee is ${q} per child and ${p} per adult; what is due for {c} children with {a} adults?"], "${t}")
fam("loan", dict(n="name", m="name", p=(5, 90), w=(2, 24), l=(10, 400), a="= p * w + l"), [("x", "p * w", "paid"), ("t", "a - x", "owed")],
    ["{n} borrowed ${a} from {m} and pays back ${p} a [week|month] for {w} [weeks|months]. How much does {n} still owe?",
     "{n} owes ${a}. After {w} payments of ${p}, how much is [left to pay|still owed]?",
     "A loan of ${a} is paid back with ${p} a month. After {w} months, how much remains?",
     "Having made {w} installments of ${p} on ${a}, what debt does {n} keep?"], "${t}")
fam("interest", dict(n="name", k=(1, 40), a="= 100 * k", p=(2, 12), y=(2, 9)), [("x", "a % p", "per year"), ("z", "x * y", "interest"), ("t", "a + z", "total")],
    ["{n} puts ${a} in a bank that pays {p}% of it each year. How much money is there after {y} years without compounding?",
     "A deposit of ${a} earns {p}% simple interest a year. What is the total after {y} years?",
     "Simple interest of {p}% a year is paid on ${a} for {y} years. How much does {n} have then?",
     "Over {y} years at {p} percent simple interest, to what does ${a} grow?"], "${t}")
fam("unit_price", dict(n="name", f="food", b=(2, 9), u=(0.25, 9, 0.25), c=(2, 30), a="= b * u"), [("x", "a / b", "one pound"), ("t", "x * c", "cost")],
    ["{b} pounds of {f} cost ${a}. How much do {c} pounds cost?",
     "{n} pays ${a} for {b} pounds of {f}. At that price, what do {c} pounds cost?",
     "If {b} pounds of {f} are ${a}, how much are {c} pounds?",
     "The cost of {b} pounds of {f} being ${a}, find the cost of {c} pounds."], "${t}")
fam("bulk", dict(n="name", it="items", p=(2, 30), d=(1, 9), a=(3, 40), q="= p + d"), [("x", "q - p", "saved on one"), ("t", "x * a", "saved")],
    ["The {it} cost ${q} each in one shop and ${p} each in another. How much does {n} save on {a}?",
     "{n} buys {a} {it} at ${p} each instead of ${q} each. How much money is saved?",
     "A club price is ${p} and the normal price ${q}. How much is saved on {a} {it}?",
     "By paying ${p} rather than ${q} for every one of {a} {it}, how much does {n} keep?"], "${t} saved")
fam("commission", dict(n="name", g="goods", a=(2, 30), q=(20, 400, 20), p=[5, 10, 15, 20, 25]), [("c", "a * q", "sales"), ("t", "c % p", "commission")],
    ["{n} sells {a} {g}s at ${q} each and gets {p}% of the sales. How much does {n} earn?",
     "A seller earns {p}% commission. What is earned on {a} {g}s of ${q} each?",
     "{n} gets {p}% of all sales and sold {a} {g}s for ${q} each. How much is that?",
     "What commission comes to {n} at {p} percent for {a} {g}s worth ${q} apiece?"], "${t}")
