"""The words that questions are made of: sets of common words, facts, successors, names and stories.

Claims take the first set of each kind; their factors take the others, one at a time. The sets called *pilot* serve for
trying out an instrument and for no verdict: the first forms of the claims were judged on them. Within a set of words or
names one half is for the prompts that heads are chosen by and the other half for those that are measured.
"""

from typing import Literal

PILOT = "pilot"
"""The name of the sets that no verdict rests on."""

COMMON = "common"
WORDS: dict[str, tuple[str, ...]] = {
    COMMON: (
        "apple", "bread", "butter", "cheese", "coffee", "dinner", "kitchen", "table", "chair", "window", "garden",
        "flower", "forest", "river", "mountain", "ocean", "island", "bridge", "road", "train", "horse", "cattle",
        "sheep", "chicken", "rabbit", "tiger", "lion", "elephant", "monkey", "snake", "summer", "winter", "spring",
        "morning", "evening", "night", "weather", "cloud", "storm", "snow", "metal", "silver", "gold", "copper", "iron",
        "stone", "wood", "paper", "cotton", "leather", "plastic", "glass", "doctor", "teacher", "student", "farmer",
        "soldier", "lawyer", "artist", "writer", "singer", "driver", "hospital", "school", "church", "market",
        "station", "airport", "hotel", "library", "museum", "theater", "music", "guitar", "piano", "dance",
    ),
    PILOT: (
        "movie", "camera", "picture", "letter", "number", "circle", "square", "color", "yellow", "purple", "orange",
        "brown", "green", "blue", "finger", "shoulder", "stomach", "heart", "blood", "brain", "bone", "skin", "science",
        "history", "math", "language", "engine", "wheel", "computer", "phone", "radio", "button", "pocket", "shirt",
        "jacket", "shoes", "battle", "army", "king", "queen", "castle", "village", "city", "country", "tax", "money",
        "price", "dollar",
    ),
}  # fmt: skip
"""Common English nouns by set; beside them `ANY` stands for every ordinary word of the tokenizer."""
ANY = "any"

STATES, CURRENCIES, CONTINENTS, YOUNG, NAMESAKES = "states", "currencies", "continents", "young", "namesakes"
TEMPLATES = {
    STATES: "The capital of the state of {S} is",
    CURRENCIES: "Shops in {S} take the local currency, the",
    CONTINENTS: "The country of {S} lies on the continent of",
    YOUNG: "In English the young of a {S} is called a",
    NAMESAKES: "In history {S} is known as a famous",
    "capitals": "The capital of {S} is the city of",
    "languages": "The official language of {S} is",
}
FACTS: dict[str, dict[str, str]] = {
    STATES: {
        "Texas": "Austin", "Georgia": "Atlanta", "Massachusetts": "Boston", "Colorado": "Denver", "Arizona": "Phoenix",
        "Ohio": "Columbus", "Tennessee": "Nashville", "Hawaii": "Honolulu", "California": "Sacramento",
        "Indiana": "Indianapolis", "Virginia": "Richmond", "Michigan": "Lansing", "Wisconsin": "Madison",
        "Louisiana": "Baton", "Alabama": "Montgomery", "Oregon": "Salem", "Washington": "Olympia", "Utah": "Salt",
        "Minnesota": "Saint", "Mississippi": "Jackson", "Nebraska": "Lincoln",
        "Pennsylvania": "Harrisburg", "Maryland": "Annapolis", "Florida": "Tallahassee", "Illinois": "Springfield",
    },
    CURRENCIES: {
        "Japan": "yen", "India": "rupee", "England": "pound", "Russia": "ruble", "Mexico": "peso", "Sweden": "krona",
        "China": "yuan", "Switzerland": "franc", "Brazil": "real", "Turkey": "lira", "Germany": "euro",
        "Israel": "shekel", "Canada": "dollar", "Thailand": "baht", "Iran": "rial", "Pakistan": "rupee",
        "Australia": "dollar", "Spain": "euro", "Argentina": "peso", "Poland": "zloty",
    },
    CONTINENTS: {
        "Japan": "Asia", "India": "Asia", "China": "Asia", "Thailand": "Asia", "Pakistan": "Asia", "Vietnam": "Asia",
        "Kenya": "Africa", "Nigeria": "Africa", "Egypt": "Africa", "Ethiopia": "Africa", "Uganda": "Africa",
        "Ghana": "Africa", "France": "Europe", "Germany": "Europe", "Italy": "Europe", "Spain": "Europe",
        "Poland": "Europe", "Sweden": "Europe", "Norway": "Europe", "Brazil": "South", "Peru": "South",
        "Argentina": "South", "Chile": "South", "Colombia": "South",
    },
    YOUNG: {
        "dog": "puppy", "cat": "kitten", "cow": "calf", "horse": "foal", "sheep": "lamb", "goat": "kid", "lion": "cub",
        "bear": "cub", "duck": "duckling", "frog": "tadpole", "chicken": "chick", "deer": "fawn",
    },
    NAMESAKES: {
        "Michael Jackson": "singer", "Andrew Jackson": "president", "Samuel Jackson": "actor",
        "George Washington": "president", "Denzel Washington": "actor", "James Brown": "singer",
        "Gordon Brown": "politician", "Neil Armstrong": "astronaut", "Louis Armstrong": "musician",
        "Elizabeth Taylor": "actress", "James Taylor": "singer", "Zachary Taylor": "president",
        "Marilyn Monroe": "actress", "James Monroe": "president", "Adam Smith": "economist", "Will Smith": "actor",
        "Bruce Lee": "martial", "Robert Lee": "general", "Harrison Ford": "actor", "Gerald Ford": "president",
        "Emma Watson": "actress", "James Watson": "scientist", "Benjamin Franklin": "scientist",
        "Aretha Franklin": "singer", "Francis Bacon": "philosopher", "Kevin Bacon": "actor",
        "Alexander Hamilton": "statesman", "Lewis Hamilton": "racing", "James Cameron": "film",
        "David Cameron": "politician", "Jimmy Carter": "president", "Howard Carter": "archae",
        "Stephen King": "writer", "Billie King": "tennis",
    },
    "capitals": {
        "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo",
        "China": "Beijing", "Russia": "Moscow", "Greece": "Athens", "Egypt": "Cairo", "England": "London",
        "Austria": "Vienna", "Poland": "Warsaw", "Portugal": "Lisbon", "Ireland": "Dublin", "Sweden": "Stockholm",
        "Norway": "Oslo", "Denmark": "Copenhagen", "Hungary": "Budapest", "Belgium": "Brussels", "Cuba": "Havana",
        "Turkey": "Ankara", "Iran": "Tehran", "Iraq": "Baghdad", "Syria": "Damascus", "Lebanon": "Beirut",
        "Kenya": "Nairobi", "Thailand": "Bangkok", "Canada": "Ottawa", "Peru": "Lima", "Chile": "Santiago",
        "Scotland": "Edinburgh", "Ukraine": "Kiev", "Finland": "Helsinki", "Vietnam": "Hanoi",
        "South Korea": "Seoul", "New Zealand": "Wellington", "Saudi Arabia": "Riyadh", "Sri Lanka": "Colombo",
    },
    "languages": {
        "France": "French", "Italy": "Italian", "Spain": "Spanish", "Germany": "German", "Japan": "Japanese",
        "China": "Mandarin", "Russia": "Russian", "Greece": "Greek", "Egypt": "Arabic", "England": "English",
        "Poland": "Polish", "Portugal": "Portuguese", "Sweden": "Swedish", "Norway": "Norwegian",
        "Denmark": "Danish", "Hungary": "Hungarian", "Turkey": "Turkish", "Iran": "Persian", "Thailand": "Thai",
        "Finland": "Finnish", "Vietnam": "Vietnamese", "Israel": "Hebrew", "South Korea": "Korean",
        "Saudi Arabia": "Arabic",
    },
}  # fmt: skip
"""True completions by subject, by relation; namesakes share the last word of their names."""
SAID_AGAIN = "The name on the list is {S} . The name on the list is"
"""A question that a subject's token answers, and no fact about it."""
ALL = "all"
RELATIONS: dict[str, tuple[str, ...]] = {
    ALL: (STATES, CURRENCIES, CONTINENTS, YOUNG),
    STATES: (STATES,),
    CURRENCIES: (CURRENCIES,),
    CONTINENTS: (CONTINENTS,),
    NAMESAKES: (NAMESAKES,),
    PILOT: ("capitals", "languages"),
}
"""Relations that questions are about, by set."""

RARE = "rare"
NAMES: dict[str, tuple[str, ...]] = {
    COMMON: (
        "Jack", "Amy", "Tom", "Lucy", "Sam", "Maria", "Ben", "Sophia", "Adam", "Olivia", "Eric", "Grace", "Kevin",
        "Jessica", "Brian", "Jennifer", "Jason", "Michelle", "Ryan", "Karen", "Alex", "Nancy", "Andrew", "Linda",
        "Anthony", "Barbara", "Matthew", "Elizabeth", "Joseph", "Rose", "Edward", "Claire",
    ),
    RARE: (
        "Ivan", "Nina", "Oscar", "Vera", "Leo", "Ruth", "Felix", "Esther", "Hugo", "Naomi", "Victor", "Miriam", "Omar",
        "Agnes", "Ahmed", "Edith", "Carlos", "Clara", "Luis", "Eva", "Juan", "Iris", "Pedro", "Luna", "Diego", "Maya",
        "Hassan", "Pearl",
    ),
    PILOT: (
        "John", "Mary", "James", "Anna", "Paul", "Kate", "Peter", "Alice", "David", "Sarah", "Robert", "Laura",
        "Michael", "Emma", "Thomas", "Jane", "Mark", "Susan", "George", "Helen", "Daniel", "Lisa", "Henry", "Julia",
        "Charles", "Emily", "Simon", "Rachel",
    ),
}  # fmt: skip
"""First names by set."""
GIVING, TALKING = "giving", "talking"
STORIES: dict[str, tuple[str, ...]] = {
    GIVING: (
        "One evening {A} and {B} met at the station and {S} passed a ticket to",
        "Before {A} and {B} left the hotel on Monday {S} sent a message to",
        "Because {A} and {B} shared a small kitchen {S} often cooked a meal for",
        "Last year {A} and {B} lived in the same town and {S} sold a car to",
    ),
    TALKING: (
        "Yesterday {A} and {B} argued about the game until {S} shouted at",
        "In the film {A} and {B} fall in love and at the end {S} marries",
        "During the lesson {A} and {B} sat together and {S} whispered something to",
        "On the beach {A} and {B} were alone when {S} smiled at",
    ),
    PILOT: (
        "Then {A} and {B} went to the store and {S} gave a drink to",
        "When {A} and {B} had a long talk in the garden {S} handed the book to",
        "After {A} and {B} came to the office this morning {S} decided to give a letter to",
        "While {A} and {B} were working at the school {S} gave an apple to",
    ),
}
"""Stories by set, in which A or B is repeated as S; the other is the IO name."""

GENERIC = "the"
"""The word that mostly follows a preposition."""
PLACES, PEOPLE = "places", "people"
CONFLICTS: dict[str, tuple[str, ...]] = {
    PLACES: (
        "My cousin studied in {B} for a year . Most of our neighbours swim in",
        "This wine was brought from {B} by ship . A strange noise came from",
        "Our band travelled to {B} last June . After lunch she walked to",
        "Two brothers talked about {B} all evening . Nobody here knows much about",
        "A large lake lies near {B} and freezes every year . Please do not park near",
        "A map of {B} hung on one wall . He opened a box and took out most of",
    ),
    PEOPLE: (
        "My aunt danced with {B} for hours . A good soup is made with",
        "They built a house for {B} last year . We had no money for",
        "This poem was written by {B} in one night . Our roof was damaged by",
        "I sat behind {B} at school . A cat was hiding behind",
    ),
    PILOT: (
        "My sister works in {B} with a friend . Every summer the children play in",
        "The old man came from {B} by train . The letters on the desk came from",
        "They sent a parcel to {B} last week . Yesterday he drove to",
        "He wrote a song about {B} in winter . The next book was about",
    ),
}
"""Texts by set that end with a preposition, after which `GENERIC` mostly follows, and B in the text."""
FILLERS: dict[str, tuple[str, ...]] = {
    PLACES: (
        "Chicago", "Boston", "Denver", "Dallas", "Houston", "Seattle", "Detroit", "Miami", "Toronto", "Sydney",
        "Mumbai", "Manchester", "Liverpool", "Milan", "Venice", "Munich", "Barcelona", "Geneva", "Cleveland",
        "Baltimore", "Portland", "Vancouver", "Montreal", "Shanghai", "Glasgow", "Melbourne",
    ),
    PEOPLE: NAMES[COMMON],
    PILOT: tuple(FACTS["capitals"].values()),
}  # fmt: skip
"""Words for B, by set."""
NOTHING = {PLACES: "town", PEOPLE: "someone", PILOT: "town"}
"""The word for B in texts that say nothing of it."""


Questions = Literal["repeated", "facts", "stories", "conflicts"]


def vocabulary(*of: Questions) -> list[str]:
    """Every word of the first sets of some kinds of questions, none: of all kinds; for a tokenizer of whole words."""
    texts: dict[Questions, tuple[str, ...]] = {
        "repeated": WORDS[COMMON],
        "facts": tuple(
            text
            for relation in RELATIONS[ALL]
            for text in (SAID_AGAIN, TEMPLATES[relation], *FACTS[relation], *FACTS[relation].values())
        ),
        "stories": (*NAMES[COMMON], *STORIES[GIVING]),
        "conflicts": (*CONFLICTS[PLACES], *FILLERS[PLACES], NOTHING[PLACES], GENERIC, *WORDS[COMMON]),
    }
    said = [word for kind in of or texts for text in texts[kind] for word in text.split()]
    return [word for word in dict.fromkeys(said) if "{" not in word]
