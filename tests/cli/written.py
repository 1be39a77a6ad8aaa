"""What commands have written."""

from pathlib import Path


def tables(place: Path) -> set[str]:
    """Names of the tables in a directory; the files of numbers beside them are no others."""
    names = {file.stem for file in place.glob("*.csv")}
    beside = {name for name in names if name.removesuffix("-tidy").removesuffix("-seeds") in names - {name}}
    return names - beside
