"""What the chat samples know: capitals, opposites, and two sentences on each of some everyday topics."""

CAPITALS = dict(p.split(":") for p in """France:Paris Germany:Berlin Spain:Madrid Italy:Rome Portugal:Lisbon Norway:Oslo
Sweden:Stockholm Finland:Helsinki Denmark:Copenhagen Poland:Warsaw Austria:Vienna Greece:Athens Turkey:Ankara
Egypt:Cairo Kenya:Nairobi Ghana:Accra Peru:Lima Chile:Santiago Cuba:Havana Canada:Ottawa Japan:Tokyo China:Beijing
India:Delhi Vietnam:Hanoi Thailand:Bangkok Australia:Canberra Ireland:Dublin Hungary:Budapest Iceland:Reykjavik
Russia:Moscow Brazil:Brasilia Belgium:Brussels Indonesia:Jakarta Morocco:Rabat Ecuador:Quito""".split())

OPPOSITES = [p.split(":") for p in """hot:cold big:small fast:slow high:low day:night old:young light:dark hard:soft wet:dry
early:late full:empty happy:sad rich:poor strong:weak long:short wide:narrow open:closed clean:dirty loud:quiet
near:far first:last up:down left:right good:bad thick:thin heavy:light sweet:bitter deep:shallow""".split()]

TOPICS = {
    "the sun": "The sun is a star. It gives the Earth light and warmth, and the Earth goes around it once a year.",
    "the moon": "The moon goes around the Earth in about a month. It shines because it reflects the light of the sun.",
    "water": "Water is a clear liquid. It freezes at 0 degrees and boils at 100 degrees Celsius.",
    "bees": "Bees are insects that collect nectar from flowers. They make honey and help plants to grow fruit.",
    "cats": "Cats are small hunters that live with people. They sleep a lot and like to play.",
    "dogs": "Dogs are friendly animals that live with people. They can guard a house and learn many tricks.",
    "trees": "Trees are tall plants with a trunk of wood. Their leaves take light from the sun and make food for the tree.",
    "rain": "Rain is water that falls from clouds. It fills rivers and lakes and lets plants grow.",
    "snow": "Snow is made of small ice crystals. It falls from clouds when the air is cold.",
    "rivers": "A river is water that flows through the land. Most rivers end in a lake or in the sea.",
    "mountains": "Mountains are high parts of the land. The air is thin and cold at the top.",
    "the sea": "The sea is salt water that covers most of the Earth. Many kinds of fish live in it.",
    "bread": "Bread is made of flour, water and a little salt. Yeast lets the dough rise before it is baked.",
    "cheese": "Cheese is made from milk. There are many kinds, some soft and some hard.",
    "tea": "Tea is a drink made from leaves and hot water. People in many countries drink it every day.",
    "coffee": "Coffee is a dark drink made from roasted beans. It helps many people to wake up.",
    "books": "A book is a set of pages with text or pictures. People read books to learn and for pleasure.",
    "music": "Music is made of sounds and rhythm. People sing it or play it on instruments.",
    "football": "Football is a game of two teams with eleven players each. The team with more goals wins.",
    "chess": "Chess is a board game for two players. The one who traps the king of the other wins.",
    "clocks": "A clock shows the time. It has a short hand for the hours and a long hand for the minutes.",
    "bicycles": "A bicycle has two wheels and pedals. It needs no fuel and keeps its rider fit.",
    "trains": "A train runs on rails and carries people or goods. Long trains can carry a lot at once.",
    "computers": "A computer is a machine that works with numbers. It follows the steps of a program very fast.",
    "the heart": "The heart pumps blood through the body. It beats about seventy times a minute.",
    "sleep": "Sleep lets the body and the mind rest. Most adults need about eight hours a night.",
    "birds": "Birds have feathers and lay eggs. Most of them can fly, and many sing.",
    "fish": "Fish live in water and breathe with gills. They swim by moving their tails.",
    "gold": "Gold is a heavy yellow metal. It does not rust and is used for coins and rings.",
    "winter": "Winter is the coldest season. The days are short and in many places it snows.",
}
