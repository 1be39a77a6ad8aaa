"""Prompts from a table: a CSV file with a header, or a JSONL file with one object per line.

The columns are `text` and `answer`, or `clean`, `corrupted`, `answer` and `foil`. Every other column names a place: its
word must occur once in each text of its row. An empty word names no place.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.text import Prompt, Tokenizer, prompt_pairs, prompts

Row = Mapping[str, str]
_BATCH, _PAIRS = ("text", "answer"), ("clean", "corrupted", "answer", "foil")


def read_prompts(path: str | Path, tokenizer: Tokenizer, *, bos: bool = True, first_token: bool = False) -> Batch:
    """The batch of a table with the column `text`, and `answer` if the batch is scored at the answer.

    The file is `*.csv` or `*.jsonl`. `bos` and `first_token` are as for `mnemoscope.prompts`, errors too. Raises
    InputError where the file cannot be read or lacks a column.
    """
    rows = _rows(Path(path), _BATCH[:1])
    answers = [row["answer"] for row in rows] if "answer" in rows[0] else None
    texts = [_row_prompt(row, "text", _BATCH) for row in rows]
    return prompts(tokenizer, texts, answers=answers, bos=bos, first_token=first_token)


def read_pairs(path: str | Path, tokenizer: Tokenizer, *, bos: bool = True, first_token: bool = False) -> PromptPairs:
    """The pairs of a table with the columns `clean`, `corrupted`, `answer` and `foil`, called like the file.

    Arguments and errors as for `read_prompts`, and errors of `mnemoscope.prompt_pairs`.
    """
    path = Path(path)
    rows = _rows(path, _PAIRS)
    clean, corrupted = ([_row_prompt(row, side, _PAIRS) for row in rows] for side in _PAIRS[:2])
    answers, foils = ([row[name] for row in rows] for name in _PAIRS[2:])
    return prompt_pairs(
        tokenizer,
        clean,
        corrupted,
        answers=answers,
        foils=foils,
        name=path.stem,
        bos=bos,
        first_token=first_token,
    )


def _rows(path: Path, needed: Sequence[str]) -> list[Row]:
    """The rows of a table, all of which have the same columns, the needed ones among them."""
    if path.suffix not in (".csv", ".jsonl"):
        raise InputError(f"{path} must be a table *.csv or *.jsonl; got {path.suffix or 'no ending'}")
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    rows = _parse_csv(path, content) if path.suffix == ".csv" else _parse_jsonl(path, content)
    if not rows:
        raise InputError(f"{path} holds no row; give at least one, with the columns {', '.join(needed)}")
    if missing := [name for name in needed if name not in rows[0]]:
        raise InputError(f"{path} must have the columns {', '.join(needed)}; {missing[0]} is missing")
    return rows


def _parse_csv(path: Path, content: str) -> list[Row]:
    rows: list[Row] = [*csv.DictReader(io.StringIO(content))]
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise InputError(f"{path}, row {number} must have as many cells as the header")
    return rows


def _parse_jsonl(path: Path, content: str) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}, line {number} is no JSON: {error}") from None
        if not isinstance(row, dict) or not all(isinstance(value, str) for value in row.values()):
            raise InputError(f"{path}, line {number} must be an object whose values are texts")
        if rows and row.keys() != rows[0].keys():
            raise InputError(f"{path}, line {number} must have the keys of the first line: {', '.join(rows[0])}")
        rows.append(row)
    return rows


def _row_prompt(row: Row, text: str, columns: Sequence[str]) -> Prompt:
    """The prompt in one column, with the places named by all columns that are not in `columns`."""
    return Prompt.find(row[text], **{name: word for name, word in row.items() if name not in columns and word})
