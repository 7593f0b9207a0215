"""The words that nano's conversations are made of.

Owns the lists, and which of them are held out: an exam draws from `HELD_OUT_*` words that no
training conversation holds. Knows no grammar.
"""

from __future__ import annotations


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _split(
    "Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Karla Leo Mara Nils Olga Paul Quinn Rosa "
    "Sam Tilda Uma Victor Wanda Xenia Yusuf Zoe Alice Boris Carmen Dora Erik Fiona George Helen "
    "Ivan Julia Kevin Laura Martin Nora Oscar Petra Ralf Sofia Tom Ursula Vera Walter Yara Adam "
    "Bella Carlos Diana Elias Frida Gustav Hanna Igor Jana Kaspar Linda Marco Nina Otto Paula Rita "
    "Simon Tara Viola Will Amir Chen Dina Farid Hiro Kenji Lena Mei Omar Priya Ravi Sana Tariq Yuki"
)
CITIES = _split(
    "Oslo Paris Berlin Rome Madrid Lisbon Vienna Prague Warsaw Athens Dublin London Bern Riga "
    "Helsinki Stockholm Tokyo Kyoto Seoul Delhi Cairo Lima Quito Boston Denver Austin Chicago "
    "Toronto Sydney Perth Nairobi Lagos Dakar Tunis Hanoi Manila Bergen Turin Porto Lyon Ghent "
    "Basel Graz Bremen Leeds Cork Malmo Krakow Split Zagreb Naples Seville Nice Milan Geneva"
)
COLOURS = _split(
    "red blue green yellow orange purple pink brown black white grey teal golden silver violet "
    "crimson amber turquoise beige indigo"
)
ANIMALS = _split(
    "heron otter fox badger hare wolf bear owl raven crow swan goose duck cat dog horse goat sheep "
    "cow pig mouse rat bat bee ant spider snail frog toad newt snake lizard turtle whale seal "
    "dolphin shark trout salmon eel crab lobster eagle hawk falcon sparrow robin parrot lynx moose "
    "camel zebra tiger lion panda koala"
)
THINGS = _split(
    "bike car boat safe door gate lamp table chair kettle radio clock camera piano guitar violin "
    "drum tent bag box basket bottle cup plate knife spoon ladder hammer drill saw rope bucket "
    "umbrella coat hat scarf glove boot shoe belt ring watch phone laptop printer screen keyboard "
    "desk shelf mirror carpet curtain pillow blanket vase candle stove oven fridge freezer heater "
    "fan pump engine wheel trailer wagon van truck scooter sled kite ball puzzle book notebook map "
    "letter parcel ticket passport key locker cabinet drawer window fence shed barn"
)
PLACES = _split(
    "garage kitchen garden cellar attic office library hall bathroom bedroom workshop studio "
    "stable harbour market station museum theatre school hospital bakery bank church castle tower "
    "bridge mill farm forest valley island beach cave lake river hill meadow orchard village"
)
FOODS = _split(
    "apple pear plum cherry lemon orange banana grape melon peach mango fig olive tomato potato "
    "carrot onion garlic pepper bean pea corn rice bread butter cheese milk cream egg honey jam "
    "soup salad pasta pizza noodle cake pie cookie waffle pancake tea coffee cocoa juice water "
    "sugar salt flour oil"
)
JOBS = _split(
    "baker nurse teacher doctor farmer pilot sailor driver painter writer singer dancer actor cook "
    "waiter gardener plumber carpenter tailor butcher barber judge lawyer clerk miner fisher "
    "soldier guard engineer chemist surgeon librarian"
)
RELATIONS = _split(
    "sister brother mother father aunt uncle cousin boss neighbour friend teacher dentist landlord "
    "grandmother grandfather daughter son wife husband colleague"
)
ADJECTIVES = _split(
    "old new big small tall short long wide narrow deep heavy light fast slow quiet loud warm cold "
    "dry wet clean dirty sharp dull soft hard smooth rough bright dark round square wooden iron "
    "copper glass paper broken hidden empty full spare secret lucky lazy brave clever kind proud "
    "calm gentle hungry sleepy rusty shiny dusty frozen tiny huge strange plain fancy cheap"
)
VERBS = _split(
    "finds keeps sells buys paints cleans hides carries watches follows draws breaks mends opens "
    "closes moves lifts drops throws catches reads hears sees likes wants needs uses builds cuts "
    "washes feeds brings sends takes leaves visits"
)
PAST = _split(
    "found kept sold bought painted cleaned hid carried watched followed drew broke mended opened "
    "closed moved lifted dropped threw caught read heard saw liked wanted needed used built cut "
    "washed fed brought sent took left visited"
)
DAYS = _split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _split(
    "January February March April May June July August September October November December"
)
UNITS = _split("euros dollars pounds metres grams litres hours minutes days weeks years miles")
SPORTS = _split("tennis football chess rowing hockey golf boxing cycling running swimming skiing")
STREETS = _split("Mill Oak Elm River Church Station Garden Bridge Castle Market King Queen Hill")
NUMBERS = _split(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
ADVERBS = _split("slowly quickly quietly often never always today again early late soon gladly")

OTHERS = _split(
    "about above after again already also always another answer because before below between both "
    "called character could describe description different during each every everything exactly "
    "example favourite first follow following function given great group house important inside "
    "instead integer language large last later learn letter level little maybe meaning message "
    "middle minute model moment money mother nothing number object often only order other others "
    "outside parameter part people perhaps person picture point present problem product program "
    "property question quite reason remember require result return right second sentence several "
    "should simple since small something sometimes string structure sure system table teach "
    "thanks their themselves there these thing think though thought through together tomorrow "
    "under understand until value version where whether which while whole without word world "
    "would write yesterday young"
)
"""Common words; pieces of them are cut out for invented ones."""

SMALL = _split(
    "type function string option description back property properties parameters required require "
    "city given from count something belong belongs exactly said told tells gives give mind result "
    "this that these those with what when where how why can will would you your my our is was are "
    "array integer boolean arguments answered done request through please such enum population "
    "temperature take secret element should more data need moved love shared question copy nothing "
    "character name not the and for but nor yet all any both few many most some than then too very "
    "just only own same here status opening whole note marker entry phrase reminder quote remark "
    "error found access timeout number tool called spell letter letters item list table row"
)
"""Small words of wordings and of tool specifications."""
PREPOSITIONS = _split(
    "across against along among around behind beside beyond during near past since through toward "
    "upon via within"
)
HELD_OUT_NAMES = _split("Matteo Ingrid Casper Rowena Dmitri Salome Bertram Noemi Anselm Thekla")
HELD_OUT_CITIES = _split("Utrecht Bogota Tampere Cordoba Aarhus Ottawa Zadar Brno Hobart Medina")
HELD_OUT_ANIMALS = _split("ferret walrus beaver pelican gecko mole stork weasel")
HELD_OUT_THINGS = _split("lantern trumpet compass hammock suitcase anvil blender helmet")
HELD_OUT_ADJECTIVES = _split("crooked mossy velvet hollow purring silent")
HELD_OUT = frozenset(
    word.lower()
    for group in (
        HELD_OUT_NAMES,
        HELD_OUT_CITIES,
        HELD_OUT_ANIMALS,
        HELD_OUT_THINGS,
        HELD_OUT_ADJECTIVES,
    )
    for word in group
)
"""Words that no generator may make up by chance."""

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "Austria": "Vienna", "Poland": "Warsaw", "Greece": "Athens",
    "Ireland": "Dublin", "England": "London", "Norway": "Oslo", "Finland": "Helsinki",
    "Sweden": "Stockholm", "Japan": "Tokyo", "Egypt": "Cairo", "Peru": "Lima", "Kenya": "Nairobi",
    "Latvia": "Riga", "Croatia": "Zagreb", "Switzerland": "Bern",
}  # fmt: skip
