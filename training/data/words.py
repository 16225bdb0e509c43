"""Word pools shared by all generators. Only nouns and names live here; sentences belong to their kind."""

NAMES = """Ana Ben Carla David Emma Felix Grace Hugo Iris Jack Kira Leo Mia Noah Olga Paul Quinn Rosa Sam Tina
Umar Vera Will Xena Yuki Zoe Alice Bruno Chloe Dario Elena Farid Gina Henry Ingrid Jonas Katia Liam Maya Nina
Oscar Petra Rafael Sofia Tomas Ursula Victor Wanda Yara Zack Amir Bella Cora Derek Ella Frank Helen Ivan Julia
Kevin Linda Mark Nora Omar Priya Robert Susan Theo Violet Walter""".split()

ITEMS = """apples oranges pears plums peaches lemons eggs cookies muffins cupcakes candies marbles stickers stamps
cards books pencils pens notebooks crayons erasers coins shells beads buttons toys blocks balloons flowers roses
tulips seeds plants bottles cups plates spoons candles ribbons photos magazines comics tickets badges keys stones
nails screws bricks tiles boxes baskets shirts socks hats scarves cakes pies sandwiches bagels pizzas""".split()

GOODS = """notebook lamp chair jacket backpack phone camera bicycle watch book toy puzzle mug pillow blanket
helmet guitar radio keyboard tent kettle toaster mirror vase clock sweater umbrella wallet speaker drill""".split()

FOODS = "rice flour sugar salt beans corn oats coffee tea nuts cheese butter honey pasta lentils".split()
ANIMALS = "cows sheep goats hens ducks rabbits horses pigs geese turkeys".split()
PLACES = ["school", "park", "library", "market", "station", "museum", "beach", "farm", "office", "stadium"]
SHOPS = ["bakery", "bookshop", "toy shop", "market stall", "cafe", "hardware store", "grocery", "flower shop"]
JOBS = ["gardener", "painter", "baker", "driver", "tutor", "cleaner", "carpenter", "plumber", "waiter", "tailor"]
COLORS = "red blue green yellow white black orange purple brown pink gray silver golden".split()
VEHICLES = ["car", "train", "bus", "truck", "cyclist", "boat", "van", "motorbike"]
CITIES = """Lisbon Oslo Cairo Lima Delhi Hanoi Quito Rome Paris Berlin Tokyo Seoul Accra Nairobi Dublin Madrid
Vienna Prague Athens Havana Bogota Manila Jakarta Sydney Toronto Denver Boston Dallas Geneva Lyon Porto Turin""".split()
SYLLABLES = """ba be bi bo bu da de di do du fa fe fi fo ga ge go ka ke ki ko ku la le li lo lu ma me mi mo mu
na ne ni no nu pa pe pi po ra re ri ro ru sa se si so su ta te ti to tu va ve vi vo za ze zo""".split()


def made_up_word(rng, low=2, high=4):
    """A pronounceable word that no text pool holds, so that it can only be copied, never guessed."""
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(low, high)))
