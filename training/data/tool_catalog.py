"""The tools that samples offer: names, parameters with types, ways to ask, results and how an answer quotes them.

A parameter is (json type, draw, description). `ask` texts are filled with the spoken form of each argument; `answer`
with the arguments and the result. Names come in several spellings, so that a call can only be copied from the offer.
"""
from . import words

INT, NUM, STR, BOOL, LIST, OBJ = "integer", "number", "string", "boolean", "array", "object"


def ints(low, high):
    return lambda r: r.randint(low, high)


def tenths(low, high):
    return lambda r: r.randint(low * 10, high * 10) / 10


def one(pool):
    return lambda r: r.choice(pool)


def some(pool, low, high):
    return lambda r: r.sample(pool, r.randint(low, high))


def flag(r):
    return r.random() < 0.5


def date(r):
    return f"{r.randint(2024, 2029)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"


def clock(r):
    return f"{r.randint(6, 22):02d}:{r.choice((0, 15, 30, 45)):02d}"


def code(r):
    return "".join(r.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(2)) + "-" + str(r.randint(100, 9999))


def mail(r):
    return f"{words.made_up_word(r)}@{words.made_up_word(r, 2, 3)}.{r.choice(('com', 'org', 'net'))}"


def phrase(r):
    return " ".join([r.choice(("buy", "call", "bring", "check", "clean", "send", "order", "fix")),
                     r.choice(("the", "some", "two", "my")), r.choice(words.COLORS), r.choice(words.ITEMS)])


CURRENCIES = ["USD", "EUR", "GBP", "JPY", "CHF", "CNY", "VND", "BRL"]
LANGUAGES = ["French", "German", "Spanish", "Chinese", "Vietnamese", "Italian", "Polish", "Swedish"]
UNITS = ["km", "miles", "meters", "feet", "kg", "pounds", "liters", "gallons"]
GENRES = ["jazz", "rock", "folk", "opera", "blues", "soul", "metal", "techno"]
ROOMS = ["kitchen", "bedroom", "bathroom", "hall", "garage", "office", "attic", "cellar"]


def point(r):
    return {"x": r.randint(0, 99), "y": r.randint(0, 99)}


def address(r):
    return {"street": words.made_up_word(r).title(), "number": r.randint(1, 199), "city": r.choice(words.CITIES)}


# name spellings, description, parameters, ways to ask (the last held out), result fields, answers
CATALOG = [
    (("get_weather", "weather_now", "fetch_weather"), "Get the current weather of a city.",
     {"city": (STR, one(words.CITIES), "Name of the city")},
     ["What is the weather in {city}?", "How is the weather in {city} now?", "Tell me about the weather of {city}."],
     {"temperature": ints(-9, 39), "sky": one(["sunny", "cloudy", "rainy", "windy", "snowy", "foggy"])},
     "It is {sky} in {city} with {temperature} degrees."),
    (("convert_currency", "exchange", "currency_convert"), "Convert an amount of money.",
     {"amount": (NUM, tenths(5, 900), "Amount"), "source": (STR, one(CURRENCIES), "From"), "target": (STR, one(CURRENCIES), "To")},
     ["Convert {amount} {source} to {target}.", "How much is {amount} {source} in {target}?", "I need {amount} {source} expressed in {target}."],
     {"result": tenths(1, 2000)}, "{amount} {source} are {result} {target}."),
    (("send_email", "mail_send", "write_email"), "Send an email.",
     {"to": (STR, mail, "Address"), "subject": (STR, phrase, "Subject"), "urgent": (BOOL, flag, "Mark as urgent")},
     ["Send an email to {to} with the subject '{subject}'. Urgent: {urgent}.", "Mail {to}, subject '{subject}', urgent {urgent}.", "Write to {to} about '{subject}' (urgent: {urgent})."],
     {"id": code}, "The email to {to} was sent with the id {id}."),
    (("set_alarm", "alarm_set", "create_alarm"), "Set an alarm.",
     {"time": (STR, clock, "Time as HH:MM"), "days": (LIST, some(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], 1, 3), "Days")},
     ["Set an alarm at {time} on {days}.", "Wake me at {time} on {days}.", "An alarm for {days} at {time}, please."],
     {"alarm": ints(100, 999)}, "Alarm {alarm} is set for {time}."),
    (("book_table", "reserve_table", "table_booking"), "Book a table in a restaurant.",
     {"restaurant": (STR, lambda r: words.made_up_word(r).title(), "Restaurant"), "people": (INT, ints(1, 12), "Guests"), "date": (STR, date, "Date"), "outdoor": (BOOL, flag, "Sit outside")},
     ["Book a table for {people} at {restaurant} on {date}. Outdoor: {outdoor}.", "Reserve {restaurant} for {people} people on {date}, outdoor {outdoor}.", "On {date} we are {people} and want to eat at {restaurant} (outdoor: {outdoor})."],
     {"confirmation": code}, "Your table at {restaurant} is booked under {confirmation}."),
    (("calculate_distance", "distance", "route_length"), "Distance between two cities in km.",
     {"origin": (STR, one(words.CITIES), "Start"), "destination": (STR, one(words.CITIES), "End")},
     ["How far is it from {origin} to {destination}?", "What is the distance between {origin} and {destination}?", "Give me the way from {origin} to {destination} in km."],
     {"km": ints(50, 9000)}, "From {origin} to {destination} it is {km} km."),
    (("translate", "translate_text", "translator"), "Translate a text.",
     {"text": (STR, phrase, "Text"), "language": (STR, one(LANGUAGES), "Language")},
     ["Translate '{text}' into {language}.", "How do you say '{text}' in {language}?", "Put '{text}' in {language}."],
     {"translation": lambda r: " ".join(words.made_up_word(r) for _ in range(3))}, "In {language} it is: {translation}"),
    (("get_stock_price", "stock_quote", "share_price"), "Latest price of a share.",
     {"symbol": (STR, lambda r: "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(r.randint(3, 4))), "Symbol")},
     ["What is the price of {symbol} shares?", "How is the stock {symbol} doing?", "Quote {symbol} for me."],
     {"price": tenths(2, 900), "currency": one(CURRENCIES)}, "{symbol} is at {price} {currency}."),
    (("play_music", "music_play", "start_music"), "Play music.",
     {"genre": (STR, one(GENRES), "Genre"), "volume": (INT, ints(1, 100), "Volume"), "shuffle": (BOOL, flag, "Shuffle")},
     ["Play {genre} at volume {volume}, shuffle {shuffle}.", "I want {genre} music, volume {volume}, shuffle: {shuffle}.", "Some {genre} please (volume {volume}, shuffle {shuffle})."],
     {"playing": lambda r: words.made_up_word(r).title()}, "Now playing: {playing}"),
    (("add_task", "todo_add", "create_task"), "Add a task to the list.",
     {"title": (STR, phrase, "Task"), "due": (STR, date, "Due date"), "priority": (INT, ints(1, 5), "1 to 5")},
     ["Add the task '{title}' due {due} with priority {priority}.", "Remind me to '{title}' by {due}, priority {priority}.", "New task: '{title}', {due}, priority {priority}."],
     {"task": ints(10, 999)}, "Task {task} was added for {due}."),
    (("set_light", "light_control", "switch_light"), "Control a lamp.",
     {"room": (STR, one(ROOMS), "Room"), "on": (BOOL, flag, "On or off"), "level": (INT, ints(1, 100), "Brightness")},
     ["Set the light in the {room}: on {on}, level {level}.", "{room} light: on {on}, brightness {level}.", "For the {room} lamp I want on = {on} and level {level}."],
     {"status": one(["ok", "done", "set"])}, "The light in the {room} is {status}."),
    (("search_books", "book_search", "find_books"), "Search the book catalog.",
     {"author": (STR, one(words.NAMES), "Author"), "year": (INT, ints(1850, 2025), "Year"), "limit": (INT, ints(1, 20), "Most results")},
     ["Find up to {limit} books by {author} from {year}.", "Search books of {author}, year {year}, limit {limit}.", "Which books did {author} write in {year}? At most {limit}."],
     {"found": ints(0, 20), "first": lambda r: words.made_up_word(r).title()}, "There are {found} books, the first is {first}."),
    (("create_event", "calendar_add", "schedule_event"), "Create a calendar event.",
     {"title": (STR, phrase, "Title"), "start": (STR, clock, "Start"), "guests": (LIST, some(words.NAMES, 1, 4), "Guests")},
     ["Create the event '{title}' at {start} with {guests}.", "Plan '{title}' at {start}, guests {guests}.", "At {start} I meet {guests} for '{title}', put it in."],
     {"event": code}, "The event {event} starts at {start}."),
    (("track_parcel", "parcel_status", "find_parcel"), "Where a parcel is.",
     {"number": (STR, code, "Parcel number")},
     ["Where is my parcel {number}?", "Track parcel {number}.", "Has {number} been delivered?"],
     {"place": one(words.CITIES), "days": ints(1, 9)}, "Parcel {number} is in {place} and arrives in {days} days."),
    (("convert_units", "unit_convert", "to_unit"), "Convert a measure.",
     {"value": (NUM, tenths(1, 500), "Value"), "unit": (STR, one(UNITS), "From"), "into": (STR, one(UNITS), "To")},
     ["Convert {value} {unit} into {into}.", "How many {into} are {value} {unit}?", "{value} {unit} in {into}, please."],
     {"value_out": tenths(1, 900)}, "{value} {unit} are {value_out} {into}."),
    (("draw_line", "line", "plot_line"), "Draw a line on the canvas.",
     {"start": (OBJ, point, "Start point with x and y"), "end": (OBJ, point, "End point with x and y"), "color": (STR, one(words.COLORS), "Color")},
     ["Draw a {color} line from {start} to {end}.", "I need a line in {color}, start {start}, end {end}.", "From {start} to {end}, make it {color}."],
     {"shape": ints(1, 99)}, "The {color} line is shape {shape}."),
    (("register_address", "set_address", "save_address"), "Save the address of a customer.",
     {"customer": (STR, one(words.NAMES), "Customer"), "address": (OBJ, address, "street, number and city")},
     ["{customer} lives at {address}. Save it.", "Save the address {address} for {customer}.", "The customer {customer} moved to {address}."],
     {"record": code}, "The address of {customer} is saved as {record}."),
    (("average", "mean_value", "compute_mean"), "Mean of a list of numbers.",
     {"numbers": (LIST, lambda r: [r.randint(1, 99) for _ in range(r.randint(2, 5))], "Numbers")},
     ["What is the mean of {numbers}?", "Compute the average of {numbers}.", "Take {numbers} and give me their mean."],
     {"mean": tenths(1, 99)}, "The mean is {mean}."),
    (("order_pizza", "pizza_order", "get_pizza"), "Order pizzas.",
     {"size": (STR, one(["small", "medium", "large"]), "Size"), "toppings": (LIST, some(["cheese", "ham", "olives", "corn", "onions", "basil"], 1, 3), "Toppings"), "count": (INT, ints(1, 9), "How many")},
     ["Order {count} {size} pizzas with {toppings}.", "I would like {count} pizzas, {size}, toppings {toppings}.", "We want {toppings} on {count} {size} pizzas."],
     {"minutes": ints(10, 90), "price": tenths(8, 99)}, "The pizzas come in {minutes} minutes and cost ${price}."),
    (("query_db", "run_query", "count_rows"), "Count rows of a table.",
     {"table": (STR, lambda r: words.made_up_word(r), "Table"), "min_id": (INT, ints(1, 9999), "Smallest id"), "active": (BOOL, flag, "Only active rows")},
     ["How many rows has {table} from id {min_id}, active {active}?", "Count {table} rows with min id {min_id}; active: {active}.", "Rows of {table}, id at least {min_id}, active = {active}?"],
     {"rows": ints(0, 9999)}, "The table {table} has {rows} such rows."),
]
