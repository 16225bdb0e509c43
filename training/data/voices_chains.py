"""Sentences of many voices for stories of several events: openings, events, endings of each kind of story."""
from .voices import tell

tell("chain_items", "opening",
     "{n} [is the owner of|looks after|is in charge of|comes with] {s} {it}.", "{s} {it} are [in the hands of|lined up by|counted by] {n}.",
     "I'm {n}, and I have {s} {it}.", "The [shed|attic|truck|museum] of {n} is home to {s} {it}.", "{n}: {s} {it}.",
     "[Last year|Years ago] {n} [started collecting|opened a shop] with {s} {it}.", "\"{s} {it},\" says {n} after counting.",
     "A [box|chest] with {s} {it} [comes to|reaches|belongs to] {n}.", "The list of {n} begins with {s} {it}.",
     "Think of {n} with {s} {it}.", "[Today|This morning] the {it} of {n} number {s}.", "A stock of {s} {it} is what {n} has at first.")
tell("chain_items", "+",
     "[An order of {k}|A delivery of {k}|A parcel with {k}] [arrives|comes in|is unpacked].", "{n} [makes|earns|collects|digs up] {k} {it} [besides|on top].",
     "To these {k} are added.", "{k} {it} [turn up in a drawer|are returned|come back].", "{n} can [add|welcome] {k} more.",
     "The [postman|boss|grandmother] [brings|leaves] {k} {it}.", "[Next come|In come|There follow] {k} {it}.", "It becomes {k} more than before.",
     "{n} [swaps a book for|is rewarded with|inherits] {k} {it}.", "{k} are [donated|handed over|sent] to {n}.", "The count goes up by {k}.",
     "{n} [orders|borrows|makes] {k} further {it}.", "With {k} from a [cousin|neighbor], the pile grows.")
tell("chain_items", "-",
     "An order of {k} [goes out|is sent off|leaves].", "{n} [parts with|ships|returns|mails off|trades away] {k} {it}.", "From these {k} are taken.",
     "{k} {it} [fall into a river|go bad|are left on a bus|are confiscated].", "{n} must [do without|give up] {k}.",
     "A [goat|storm|fire|customer] [takes|costs {n}] {k} {it}.", "[Off go|Out go|Away go] {k} {it}.", "It becomes {k} fewer than before.",
     "{n} [pays a debt with|wraps up|leaves behind] {k} {it}.", "{k} are [passed on|returned|sent] to a [sister|museum].",
     "The count goes down by {k}.", "{n} [cannot find|breaks|eats or drops] {k} of them.", "Without {k} that [get wet|rot|are borrowed], the rest stays.")
tell("chain_items", "*",
     "{n} works hard until there are {k} times as many.", "The number of {it} is now {k} times what it used to be.", "For each one there are {k} after [a month|that].",
     "{n} [turns|makes] one into {k}, and does so with all of them.", "A lucky [month|day] multiplies the {it} by {k}.", "This is followed by a rise to {k} times the number.",
     "[A machine copies|Someone copies] them until they are {k} times as many.", "The collection swells to {k} times its size.", "The count is multiplied by {k}.",
     "{k} times that number is what {n} has next.", "By magic, they become {k} times as many.")
tell("chain_items", "/",
     "They are put into {k} equal [piles|boxes], and {n} takes one.", "{n} and some friends, {k} people in all, share them equally.", "{n} divides the {it} by {k}.",
     "Just 1/{k} of the {it} [survive|pass a check|stay].", "Out of every {k} {it} only one is kept.", "A fire spares 1/{k} of them.",
     "{n} cuts the stock to 1/{k}.", "{k} people get the same share of all {it}; {n} is one of them and keeps that share.", "The number goes down to 1/{k} of what it was.",
     "{n} sorts them into {k} equal groups and keeps a single group.", "All but 1/{k} of them are gone.", "The count is divided by {k}.")
tell("chain_items", "%",
     "{k}% of them [are returned|go bad|are traded|burn].", "{k}% of the stock [leaves|is sold off|goes to a school].", "{n} [mails|ships|trades|breaks] {k}% of the {it}.",
     "The stock shrinks by {k}%.", "Then it is {k}% less.", "A [flood|sale|thief] takes {k}% of them.", "{n} must do without {k}% of the {it}.",
     "{k} in every hundred [are taken out|go].", "A loss of {k}% follows.", "{n} sets {k}% of them free for others to take.", "The count goes down by {k}%.",
     "{k}% [turn out to be broken and are thrown out|are not good and leave the stock].")
tell("chain_items", "each",
     "{j} [parcels|boxes|bags] arrive, {k} {it} in each.", "{k} {it} a day [come in|are made], for {j} days.", "{j} [visitors|neighbors] come, and each leaves {k} {it}.",
     "{n} makes {k} {it} on each of {j} days.", "{j} times {n} [buys|finds] {k} {it}.", "Then {n} gets {k} {it} from every one of {j} [cousins|schools].",
     "With {k} {it} from each of {j} shops, {n} has more.", "{n} [opens|unpacks] {j} [cartons|sacks] that hold {k} {it} apiece and adds them.",
     "{n} receives {j} sets of {k}.", "{j} helpers bring in {k} apiece.", "For {j} weeks the number rises by {k} a week.", "The count goes up {j} times, by {k} each time.",
     "{j} rows of {k} {it} are added.")
tell("chain_items", "each-",
     "{j} [parcels|boxes|bags] are sent off, {k} {it} in each.", "{k} {it} a day [are used|are sold|leave], for {j} days.", "{j} [visitors|neighbors] come, and each takes {k} {it} away.",
     "{n} uses {k} {it} on each of {j} days.", "{j} times {n} [loses|sells] {k} {it}.", "Then every one of {j} [cousins|schools] gets {k} {it} from {n}.",
     "With {k} {it} gone to each of {j} shops, {n} has fewer.", "{n} [fills|packs] {j} [cartons|sacks] with {k} {it} apiece and ships them.",
     "{n} parts with {j} sets of {k}.", "{j} helpers are paid with {k} {it} apiece.", "For {j} weeks the number falls by {k} a week.", "The count goes down {j} times, by {k} each time.",
     "{j} rows of {k} {it} are taken away.")
tell("chain_items", "ending",
     "How many {it} [does that leave|does that make|is that]?", "What is the [final|last|new] [count|number] of {it}?", "With how many {it} does {n} [finish|end|go to bed]?",
     "How large is the [stock|collection] of {n} [now|at last]?", "[Tell me|Say|Find out] how many {it} {n} has in the end.", "How many {it} can {n} count now?",
     "[Count|Give] the {it} of {n} [as they are now|after all this].", "{it} of {n} now?", "Now {n} counts the {it}. What comes out?", "How many {it} are with {n} when all is done?",
     "After all of this, how many {it} does {n} [own|have]?", "How many {it} are there to be found at the end of the story?")
tell("chain_money", "opening",
     "{n} [has put aside|comes with|carries|walks in with] ${s}.", "${s} [are in the hands of|belong to|lie in the drawer of] {n}.", "I'm {n}, and I have ${s}.",
     "The [piggy bank|account|cash box|safe] of {n} [has|shows|contains] ${s}.", "{n}: ${s}.", "[Last year|Years ago] {n} [opened an account|began a business] with ${s}.",
     "\"${s},\" says {n} after counting the money.", "The balance of {n} is ${s}.", "{n} sets out with ${s}.", "Think of {n} with ${s}.", "[Today|This morning] the money of {n} is ${s}.",
     "A sum of ${s} is what {n} has at first.")
tell("chain_money", "+",
     "[A deposit of ${k}|A check of ${k}|A payment of ${k}] [arrives|comes in|is added].", "{n} [collects|wins|makes|is awarded] ${k} [besides|on top].", "To this ${k} are added.",
     "${k} are [refunded|paid back to {n}|found in a coat].", "The [boss|bank|grandmother] [gives|adds|leaves] ${k}.", "[Next come|In come|There follow] ${k}.", "It becomes ${k} more than before.",
     "{n} [is rewarded with|inherits|borrows] ${k}.", "A [prize|raise|bonus|gift] of ${k} follows.", "The balance goes up by ${k}.", "{n} sells [a bike|an old lamp|a painting] for ${k}.",
     "With ${k} from a [cousin|neighbor], the sum grows.")
tell("chain_money", "-",
     "[A bill|A check|A fine] of ${k} [goes out|is paid].", "{n} [parts with|donates|returns|lends] ${k}.", "From this ${k} are taken.", "${k} [fall into a river|are stolen|go to the bank].",
     "{n} must [do without|give up|pay] ${k}.", "A [dentist|storm|broken window|trip] costs {n} ${k}.", "[Off go|Out go|Away go] ${k}.", "It becomes ${k} less than before.",
     "{n} pays [a debt|the rent|for a train ride] with ${k}.", "${k} are [passed on|returned|sent] to a [sister|museum].", "The balance goes down by ${k}.", "[Shoes|Groceries|Tools|Flowers] are bought for ${k}.",
     "{n} treats everyone to a dinner of ${k}.")
tell("chain_money", "*",
     "{n} trades well until there is {k} times as much.", "The money is now {k} times what it used to be.", "For each dollar there are {k} after [a year|that].",
     "{n} makes {k} dollars out of every one.", "A lucky [month|day] multiplies the money by {k}.", "This is followed by a rise to {k} times the sum.", "The savings swell to {k} times their size.",
     "The balance is multiplied by {k}.", "{k} times that sum is what {n} has next.", "A good deal turns it into {k} times as much.")
tell("chain_money", "/",
     "It is put into {k} equal envelopes, and {n} takes one.", "{n} and some partners, {k} people in all, share it equally.", "{n} divides the money by {k}.", "Just 1/{k} of the money [stays|is kept].",
     "Out of every {k} dollars only one is kept.", "A bad year leaves {n} 1/{k} of it.", "{n} cuts the sum to 1/{k}.", "{k} people get the same share of it; {n} is one of them and keeps that share.",
     "The sum goes down to 1/{k} of what it was.", "All but 1/{k} of it is gone.", "The balance is divided by {k}.")
tell("chain_money", "%",
     "{k}% of it [is donated|goes to the bank|is invested and lost|is taxed away].", "A tax takes {k}% of the sum.", "{n} [donates|lends|invests and loses] {k}% of the money.", "The sum shrinks by {k}%.",
     "Then it is {k}% less.", "A [fee|thief|bad deal] takes {k}% of it.", "{n} must do without {k}% of it.", "{k} cents of every dollar [are paid out|go].", "A loss of {k}% follows.",
     "The balance goes down by {k}%.", "{n} puts {k}% of the money into a present for a friend.")
tell("chain_money", "each",
     "{j} [checks|payments] come in, ${k} each.", "${k} a day come in, for {j} days.", "{j} [visitors|customers] come, and each leaves ${k}.", "{n} makes ${k} on each of {j} days.",
     "{j} times {n} [earns|gets] ${k}.", "Then {n} gets ${k} from every one of {j} [cousins|clients].", "With ${k} from each of {j} jobs, {n} has more.", "{n} lets {j} {it} go at ${k} apiece.",
     "{j} {it} are sold by {n}, and each brings ${k}.", "For {j} weeks the sum rises by ${k} a week.", "The balance goes up {j} times, by ${k} each time.", "{n} works {j} shifts at ${k} a shift.",
     "{n} mows {j} lawns for ${k} a lawn.")
tell("chain_money", "each-",
     "{j} [bills|payments] go out, ${k} each.", "${k} a day are used, for {j} days.", "{j} [helpers|workers] come, and each is paid ${k}.", "{n} spends ${k} on each of {j} days.",
     "{j} times {n} [pays|loses] ${k}.", "Then every one of {j} [cousins|clients] gets ${k} from {n}.", "With ${k} gone to each of {j} shops, {n} has less.", "{n} pays for {j} {it}, ${k} apiece.",
     "{j} {it} are bought by {n}, and each takes ${k}.", "For {j} weeks the sum falls by ${k} a week.", "The balance goes down {j} times, by ${k} each time.", "{n} takes {j} rides at ${k} a ride.",
     "{n} gets tickets for {j} people at ${k} a ticket.")
tell("chain_money", "ending",
     "How much money [does that leave|does that make|is that]?", "What is the [final|last|new] [balance|sum]?", "With how many dollars does {n} [finish|end|go home]?", "How large is the sum of {n} [now|at last]?",
     "[Tell me|Say|Find out] how much money {n} has in the end.", "How many dollars can {n} count now?", "[Count|Give] the dollars of {n} [as they are now|after all this].", "Money of {n} now?",
     "Now {n} counts the money. What comes out?", "After all of this, how much money does {n} [own|have]?", "What does the account of {n} show when all is done?")
tell("chain_water", "opening",
     "{n} looks after a [tank|well|tub|lake] of {s} liters.", "{s} liters [stand in|were let into] the [tank|tub|pool] of {n}.", "I'm {n}, and my [tank|pool|tub] has {s} liters in it.",
     "The [cistern|tub|fish tank|pond] of {n} [has|contains] {s} liters of water.", "Tank of {n}: {s} liters.", "\"{s} liters,\" says {n} after a look at the tank.", "The gauge on the tank of {n} shows {s} liters.",
     "Think of a tank of {n} with {s} liters.", "[Today|This morning] the water in the [cistern|tank] of {n} is {s} liters.", "In the garden of {n} stands a barrel with {s} liters.")
tell("chain_water", "+",
     "[A truck with|A shower of|A delivery of] {k} liters [comes|fills it further].", "{n} [pumps|pours|lets] in {k} liters [besides|on top].", "To this {k} liters are added.", "{k} liters [come from the roof|are returned|drip in].",
     "The [neighbor|gardener] [brings|adds] {k} liters.", "[Next come|In come|There follow] {k} liters.", "It becomes {k} liters more than before.", "The level goes up by {k} liters.",
     "With {k} liters from a [well|spring], the water rises.", "A brook feeds it {k} liters.", "{n} tops it up with {k} liters.")
tell("chain_water", "-",
     "[A bath|A thirsty herd|A crack] [takes|costs] {k} liters.", "{n} [lets go|scoops out|sells|gives away] {k} liters.", "From this {k} liters are taken.", "{k} liters [evaporate|seep away|run into the garden|spill over].",
     "{n} must [do without|give up] {k} liters.", "[Off go|Out go|Away go] {k} liters.", "It becomes {k} liters less than before.", "The level goes down by {k} liters.", "{n} waters the [roses|trees] with {k} liters.",
     "The washing needs {k} liters.", "A neighbor is allowed to take {k} liters.")
tell("chain_water", "*",
     "It rains until there is {k} times as much.", "The water is now {k} times what it used to be.", "A wet [month|day] multiplies the water by {k}.", "This is followed by a rise to {k} times the amount.",
     "The water swells to {k} times its amount.", "The level is multiplied by {k}.", "{k} times that amount is in it next.", "A flood makes it {k} times as much.", "For each liter there are {k} after the rain.")
tell("chain_water", "/",
     "It is let into {k} equal [pots|ponds], of which {n} keeps one.", "{n} and some neighbors, {k} homes in all, share it equally.", "{n} divides the water by {k}.", "Just 1/{k} of the water [stays|is clean and kept].",
     "Out of every {k} liters only one is kept.", "A dry summer leaves 1/{k} of it.", "{n} lets it sink to 1/{k}.", "The amount goes down to 1/{k} of what it was.", "All but 1/{k} of it is gone.", "The level is divided by {k}.")
tell("chain_water", "%",
     "{k}% of it [evaporates|seeps away|is given to a neighbor|runs off].", "The sun takes {k}% of the water.", "{n} [lets go|sells|scoops out] {k}% of the water.", "The water shrinks by {k}%.", "Then it is {k}% less.",
     "A [leak|hot day|pump] takes {k}% of it.", "{n} must do without {k}% of it.", "A loss of {k}% follows.", "The level goes down by {k}%.", "The garden gets {k}% of the water.")
tell("chain_water", "each",
     "{j} [buckets|cans|jugs] go in, {k} liters each.", "{k} liters a day flow in, for {j} days.", "{j} [neighbors|firemen] come, and each pours in {k} liters.", "{n} adds {k} liters on each of {j} days.",
     "{j} times {n} [pours|pumps] in {k} liters.", "Then {k} liters come from every one of {j} [roofs|wells].", "{n} empties {j} [buckets|barrels] that hold {k} liters apiece into it.",
     "For {j} hours the water rises by {k} liters an hour.", "The level goes up {j} times, by {k} liters each time.", "A tap runs for {j} minutes and gives {k} liters in each.", "With {j} loads of {k} liters, a truck fills it further.")
tell("chain_water", "each-",
     "{j} [buckets|cans|jugs] are taken out, {k} liters each.", "{k} liters a day are used, for {j} days.", "{j} [neighbors|cows] come, and each takes {k} liters.", "{n} uses {k} liters on each of {j} days.",
     "{j} times {n} [scoops|pumps] out {k} liters.", "Then every one of {j} [gardens|homes] gets {k} liters.", "{n} fills {j} [buckets|barrels] that hold {k} liters apiece from it.",
     "For {j} hours the water falls by {k} liters an hour.", "The level goes down {j} times, by {k} liters each time.", "A drain is open for {j} minutes and loses {k} liters in each.", "{j} trees are watered with {k} liters apiece.")
tell("chain_water", "ending",
     "How many liters [does that leave|does that make|is that]?", "What is the [final|last|new] [level|amount] in liters?", "With how many liters does it end?", "How many liters has {n} [now|at last]?",
     "[Tell me|Say|Find out] how many liters {n} has in the end.", "How many liters can {n} count on now?", "Give the liters [as they are now|after all this].", "Liters of {n} now?",
     "Now {n} checks the gauge. How many liters does it show?", "After all of this, how much water does {n} [own|have], in liters?", "How full is it when all is done, in liters?")
