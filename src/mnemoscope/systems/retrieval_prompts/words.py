"""Words that questions are made of, as in the source's examples; the first two lists go on where those end.

No word begins another one of its list, so that no answer is the beginning of another.
"""

LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")

NAMES = (
    "Alice", "Bob", "Charlie", "David", "Eve", "Frank", "Grace", "Henry", "Isabelle", "Jack", "Kate", "Larry", "Mary",
    "Nick", "Olivia", "Peter", "Queen", "Rose", "Sam", "Tom", "Ursula", "Victor", "Wendy", "Xavier", "Yvonne", "Zach",
)  # fmt: skip
CITIES = (
    "Amsterdam", "Berlin", "Cairo", "Delhi", "Edinburgh", "Florence", "Geneva", "Helsinki", "Istanbul", "Jakarta",
    "Kyoto", "Lisbon", "Madrid", "Nairobi", "Oslo", "Paris", "Quito", "Rome", "Sydney", "Tokyo", "Utrecht", "Vienna",
    "Warsaw", "Xiamen", "York", "Zagreb",
)  # fmt: skip

KINGDOMS = {"Novaria": "Novarians", "Silvania": "Silvanians", "Aurora": "Aurorans", "Florinia": "Florinians"}
"""By kingdom, who lives there."""
BELIEFS = {
    "harmonianism": "Harmonianists",
    "celestianism": "Celestianists",
    "elysianism": "Elysianists",
    "luminism": "Luminists",
}
"""By belief, who holds it."""
MEATS = ("lamb", "chicken", "pork", "beef")
SUBSTANCES = ("Zephyrium", "Nephryon", "Virellium", "Astralyte")
CONDITIONS = ("Chronogy", "Synthemia", "Somnosis", "Aetherflux")

PEOPLE = ("John", "Chris", "Diana", "Eve")
RELATIVES = {
    "mother": ("Jane", "Penny", "Nancy", "Lily"),
    "sister": ("Olivia", "Dana", "Isabelle", "Cathy"),
    "father": ("Ed", "Adam", "Hank", "Fred"),
    "brother": ("Mike", "George", "Bob", "Kevin"),
}
"""By relation the names; whose relative each is, is drawn."""
JOBS = {"doctor": "a doctor", "lawyer": "a lawyer", "teacher": "a teacher", "engineer": "an engineer"}
"""By profession, what somebody works as."""
COUNTRIES = (
    "Argentina", "Brazil", "Canada", "Denmark", "England", "France", "Germany", "Hungary", "Italy", "Japan", "Kenya",
    "Laos", "Mexico", "Norway", "Peru", "Qatar",
)  # fmt: skip
