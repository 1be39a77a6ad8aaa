"""Answers read from the text alone, by rules of language that know nothing of how the text was made."""

import re


def solve(text: str) -> str:
    """The answer to the last line, from the lines before it."""
    *lines, asked = [line.strip().rstrip(".") for line in text.strip().splitlines()]
    if found := re.match(r"What is the value of (\w)\((\w)\)\?", asked):
        return _value(lines, f"{_meaning(lines, found[1])}({_value(lines, found[2])})")
    if found := re.match(r"What is the value of (\w)\?", asked):
        return _value(lines, found[1])
    if found := re.match(r"Who has (\w+)\?", asked):
        return _who(lines, found[1])
    found = re.match(r"Where does (\w+) live\?", asked)
    assert found is not None, asked
    return _where(lines, found[1])


def _the_one(lines: list[str], pattern: str) -> str:
    found = [match[1] for line in lines if (match := re.fullmatch(pattern, line))]
    assert len(found) == 1, (pattern, found)
    return found[0]


def _value(lines: list[str], name: str) -> str:
    value = _the_one(lines, rf"{re.escape(name)} = (\w+)")
    return value if value.isdecimal() else _value(lines, value)


def _meaning(lines: list[str], alias: str) -> str:
    return _the_one(lines, rf"{alias} = ([a-z])")


def _where(lines: list[str], name: str) -> str:
    if any(line.startswith(f"{name} works as") for line in lines):
        job = _the_one(lines, rf"{name} works as an? (\w+)")
        relation = _the_one(lines, rf"{job.capitalize()}s live with their (\w+)s")
        return _where(lines, _the_one(lines, rf"{name}s {relation} is (\w+)"))
    if any(line.startswith(f"{name} lives with") for line in lines):
        return _where(lines, _the_one(lines, rf"{name} lives with (\w+)"))
    return _the_one(lines, rf"{name} lives in (\w+)")


def _who(lines: list[str], condition: str) -> str:
    substance = _the_one(lines, rf"(\w+) causes {condition}")
    meat = _the_one(lines, rf"(\w+) contains {substance}")
    believers = _the_one(lines, rf"(\w+) eat {meat.lower()}")
    belief = believers.removesuffix("ists").lower() + "ism"
    inhabitants = _the_one(lines, rf"(\w+) believe in {belief}")
    stem = inhabitants.removesuffix("ns").removesuffix("a")
    return _the_one(lines, rf"(\w+) lives in {stem}\w{{0,2}}")
