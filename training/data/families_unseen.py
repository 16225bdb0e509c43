"""Ten families that training never shows: the unseen set reports how far the skill carries."""
from .family import fam

UNSEEN = ["u_candle", "u_stairs", "u_library_fine", "u_two_trains", "u_paint", "u_garden_beds", "u_relay", "u_exchange",
          "u_museum", "u_battery"]

fam("u_candle", dict(n="name", a=(10, 40), r=(1, 4), h=(1, 2)), [("x", "r * h", "burned"), ("t", "a - x", "left")],
    ["A candle of {n} is {a} cm tall and melts {r} cm every hour. How tall is it after {h} hours?"] * 3, "{t} cm")
fam("u_stairs", dict(n="name", f=(2, 20), s=(8, 25), k=(2, 9)), [("x", "f * s", "one climb"), ("t", "x * k", "all climbs")],
    ["A tower has {f} floors with {s} steps between floors. {n} climbs it {k} times. How many steps is that?"] * 3, "{t} steps")
fam("u_library_fine", dict(n="name", b=(2, 9), d=(2, 30), c=(0.1, 0.5, 0.05)), [("x", "b * d", "late days"), ("t", "x * c", "fine")],
    ["{n} returns {b} books {d} days late. The fine is ${c} per book and day. How much does {n} pay?"] * 3, "${t}")
fam("u_two_trains", dict(a=(40, 90), b=(40, 90), h=(2, 9)), [("x", "a + b", "per hour"), ("t", "x * h", "apart")],
    ["Two trains leave a town in opposite directions at {a} and {b} km per hour. How far apart are they after {h} hours?"] * 3, "{t} km")
fam("u_paint", dict(n="name", w=(2, 8), a=(6, 30), k=(2, 6), m=(1, 12), t0="= w * a / k"), [("x", "w * a", "square meters"), ("t", "x / k", "cans")],
    ["{n} paints {w} walls of {a} square meters each. One can is enough for {k} square meters. How many cans does {n} use?"] * 3, "{t} cans")
fam("u_garden_beds", dict(n="name", b=(2, 12), r=(2, 9), p=(2, 12), d=(2, 20)), [("x", "b * r", "rows"), ("y", "x * p", "planted"), ("t", "y - d", "alive")],
    ["{n} has {b} beds with {r} rows and {p} plants per row. {d} plants die. How many plants live?"] * 3, "{t} plants")
fam("u_relay", dict(a=(40, 90), b=(40, 90), c=(40, 90), d=(40, 90)), [("t", "a + b + c + d", "time")],
    ["Four runners of a relay need {a}, {b}, {c} and {d} seconds. What is the time of the team?"] * 3, "{t} seconds")
fam("u_exchange", dict(n="name", a=(20, 400), r=(2, 9), s=(10, 90)), [("x", "a * r", "exchanged"), ("t", "x - s", "left")],
    ["{n} exchanges {a} dollars at {r} crowns per dollar and spends {s} crowns. How many crowns are left?"] * 3, "{t} crowns")
fam("u_museum", dict(n="name", r=(3, 20), p=(4, 30), s=(2, 40), f=(2, 9)), [("x", "r * p", "pictures"), ("y", "s * f", "statues"), ("t", "x + y", "works")],
    ["A gallery has {r} rooms with {p} pictures each and {f} halls with {s} statues each. How many works are on show?"] * 3, "{t} works")
fam("u_battery", dict(n="name", c=(60, 100), p=(2, 8), h=(2, 7)), [("x", "p * h", "used"), ("t", "c - x", "left")],
    ["The phone of {n} is at {c} percent and loses {p} percent an hour. What does it show after {h} hours?"] * 3, "{t} percent")
