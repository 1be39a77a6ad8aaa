"""The material of prompts: ordinary tokens, facts, and common first names; a tokenizer decides which can be used."""

from collections.abc import Sequence
from typing import Any

SPACES = "Ġ▁"
"""Signs by which tokenizers write the space that a word begins with."""
SHORTEST = 3
"""Letters of an ordinary word."""

CAPITAL = "The capital of {S} is the city of"
LANGUAGE = "The official language of {S} is"
FACTS: dict[str, dict[str, str]] = {
    CAPITAL: {
        "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo",
        "China": "Beijing", "Russia": "Moscow", "Greece": "Athens", "Egypt": "Cairo", "England": "London",
        "Austria": "Vienna", "Poland": "Warsaw", "Portugal": "Lisbon", "Ireland": "Dublin", "Sweden": "Stockholm",
        "Norway": "Oslo", "Denmark": "Copenhagen", "Hungary": "Budapest", "Belgium": "Brussels", "Cuba": "Havana",
        "Turkey": "Ankara", "Iran": "Tehran", "Iraq": "Baghdad", "Syria": "Damascus", "Lebanon": "Beirut",
        "Kenya": "Nairobi", "Thailand": "Bangkok", "Canada": "Ottawa", "Peru": "Lima", "Chile": "Santiago",
        "Scotland": "Edinburgh", "Ukraine": "Kiev", "Finland": "Helsinki", "Vietnam": "Hanoi",
        "South Korea": "Seoul", "New Zealand": "Wellington", "Saudi Arabia": "Riyadh", "Sri Lanka": "Colombo",
    },
    LANGUAGE: {
        "France": "French", "Italy": "Italian", "Spain": "Spanish", "Germany": "German", "Japan": "Japanese",
        "China": "Mandarin", "Russia": "Russian", "Greece": "Greek", "Egypt": "Arabic", "England": "English",
        "Poland": "Polish", "Portugal": "Portuguese", "Sweden": "Swedish", "Norway": "Norwegian",
        "Denmark": "Danish", "Hungary": "Hungarian", "Turkey": "Turkish", "Iran": "Persian", "Thailand": "Thai",
        "Finland": "Finnish", "Vietnam": "Vietnamese", "Israel": "Hebrew", "South Korea": "Korean",
        "Saudi Arabia": "Arabic",
    },
}  # fmt: skip
"""True completions by subject, by template."""

NAMES = (
    "John", "Mary", "James", "Anna", "Paul", "Kate", "Peter", "Alice", "David", "Sarah", "Robert", "Laura", "Michael",
    "Emma", "Thomas", "Jane", "Mark", "Susan", "George", "Helen", "Daniel", "Lisa", "Henry", "Julia", "Charles",
    "Emily", "Simon", "Rachel",
)  # fmt: skip
STORIES = (
    "Then {A} and {B} went to the store and {S} gave a drink to",
    "When {A} and {B} had a long talk in the garden {S} handed the book to",
    "After {A} and {B} came to the office this morning {S} decided to give a letter to",
    "While {A} and {B} were working at the school {S} gave an apple to",
)
"""Stories in which A or B is repeated as S; the other is the IO name."""


GLOBAL = {
    "Albert": "Einstein", "Barack": "Obama", "Donald": "Trump", "Isaac": "Newton", "Vladimir": "Putin",
    "Winston": "Churchill", "Elvis": "Presley", "Nelson": "Mandela", "Sherlock": "Holmes", "Abraham": "Lincoln",
    "Charles": "Darwin", "William": "Shakespeare", "Michael": "Jackson", "Martin": "Luther", "Theodore": "Roosevelt",
    "Thomas": "Jefferson", "George": "Washington", "Harry": "Potter", "Mickey": "Mouse", "Santa": "Claus",
    "Los": "Angeles", "San": "Francisco", "Las": "Vegas", "Hong": "Kong", "Saudi": "Arabia", "Puerto": "Rico",
    "Costa": "Rica", "Buenos": "Aires", "Sri": "Lanka", "El": "Salvador", "Star": "Wars", "Wall": "Street",
    "Silicon": "Valley", "Nobel": "Prize", "World": "War", "Super": "Bowl", "Niagara": "Falls", "Napoleon": "Bonaparte",
    "Walt": "Disney", "Marilyn": "Monroe", "Oprah": "Winfrey", "Bill": "Clinton", "Hillary": "Clinton",
    "Ronald": "Reagan", "Karl": "Marx", "Sigmund": "Freud", "Galileo": "Galilei", "Leonardo": "da",
}  # fmt: skip
"""The word that mostly follows, by word."""
LOCAL = ("Garden", "Baker", "Table", "Miller", "Winter", "Carpenter", "River", "Fisher")
"""Words that mostly follow none of these."""
CONFLICT = "Everyone here talks about {A} {B} . We like {A} {B} and we met {A}"
PLAIN = "Everyone here talks about the weather . We like the garden and we met {A}"
"""Where A has a successor in the text, and where it has none."""


def ordinary(tokenizer: Any, d_vocab: int) -> tuple[int, ...]:
    """Tokens that are whole words of ASCII letters, with the space before them where the tokenizer has such tokens."""
    numbers = range(min(d_vocab, len(tokenizer)))
    special = set(tokenizer.all_special_ids)
    texts = dict(zip(numbers, tokenizer.convert_ids_to_tokens(list(numbers)), strict=True))
    words = {number: text for number, text in texts.items() if number not in special and _is_word(text)}
    spaced = tuple(number for number, text in words.items() if text[0] in SPACES)
    return spaced or tuple(words)


def _is_word(text: str) -> bool:
    letters = text.lstrip(SPACES)
    return len(letters) >= SHORTEST and letters.isascii() and letters.isalpha()


def vocabulary() -> Sequence[str]:
    """Every word of the prompts, for a tokenizer of whole words."""
    facts = [word for template, of in FACTS.items() for text in (template, *of, *of.values()) for word in text.split()]
    stories = [word for story in STORIES for word in story.split()]
    said = (*CONFLICT.split(), *GLOBAL, *GLOBAL.values(), *LOCAL)
    return [word for word in dict.fromkeys((*facts, *NAMES, *stories, *said)) if "{" not in word]
