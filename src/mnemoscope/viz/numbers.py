"""Numbers in words and in formats, without an array library: what every command prints."""


def counted(n: int, thing: str) -> str:
    """How many there are, in words: `1 run`, `2 runs`."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def rounded(value: float, form: str = ".4f") -> str:
    """A number in a format such as `.2f` or `+.3g`; what is rounded to zero has no minus."""
    sign = form[:1] if form[:1] in "+- " else ""
    return f"{value:{sign}z{form.removeprefix(sign)}}"
