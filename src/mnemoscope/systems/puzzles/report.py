"""The reports on runs of the puzzles: the page of any task, with each puzzle in words."""

from dataclasses import replace

from mnemoscope import REPORTS
from mnemoscope.report import plain_report

PAGES = {
    "palindrome": (
        "Palindromes",
        "Twenty values stand between START and END; is the sequence its own mirror image? The answer is due at END.",
    ),
    "brackets": (
        "Balanced brackets",
        "Up to forty brackets stand between START and END; are they balanced? The answer is due at START.",
    ),
    "first-unique": (
        "First unique letter",
        "Letters follow START; at every position the answer is the first letter so far that stood there once, or ?.",
    ),
    "digit-sum": (
        "Sum of two numbers",
        "Two numbers of four digits are followed by their sum, highest digits first, which is to be continued.",
    ),
    "sorted-list": (
        "Sorted lists",
        "Ten distinct values from 0 to 50 are followed by SEP, and then by the same values in ascending order.",
    ),
    "running-sum": (
        "Running sums",
        "Twenty values from -5 to 5; at every position: is the sum so far negative, zero or positive?",
    ),
}
"""Title and task in words, by task."""
for _name, (_title, _about) in PAGES.items():
    REPORTS.add(_name, replace(plain_report.PLAIN, title=_title, about=_about))
