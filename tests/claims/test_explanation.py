"""Texts of claims in a YAML file: what is filled in, and what is refused."""

import pytest

from mnemoscope.claims import ClaimTexts, Explanation, Quantity
from mnemoscope.core.errors import InputError

TEXT = """
phrases:
  shown: "{n:,} sequences are shown."
claims:
  A1:
    procedure: "{shown} Then {{they}} end."
    quantities:
      effect: {words: the share above, formula: "s > {margin}"}
      beside: a number
    margins: "{margin} or {margin:g} of {whole}."
"""


def texts(tmp_path, content=TEXT, **values):
    file = tmp_path / "texts.yaml"
    file.write_text(content)
    return ClaimTexts(file, values)


def test_phrases_and_numbers_are_filled_in(tmp_path):
    found = texts(tmp_path, n=2048).explain("A1", margin=0.05, whole=1.0)
    assert found == Explanation(
        procedure="2,048 sequences are shown. Then {they} end.",
        quantities={
            "effect": Quantity(words="the share above", formula="s > .05"),
            "beside": Quantity(words="a number"),
        },
        margins=".05 or 0.05 of 1.",
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    margins:", "    margin:", "texts.yaml: claims.A1.margins: Field required"),
        ("claims:", "claim:", "texts.yaml: claims: Field required"),
        ("formula:", "formular:", "texts.yaml: claims.A1.quantities.effect.formular: Extra inputs"),
        ("beside: a number", "beside: 3", "texts.yaml: claims.A1.quantities.beside: Input should be"),
        (
            "{whole}",
            "{part}",
            "texts.yaml: claims.A1.margins: {'part'} cannot be filled; known: margin, n,",
        ),
        ("{whole}", "{whole", "texts.yaml: claims.A1.margins: "),
        ("A1:", "A1: [", "texts.yaml is no YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(tmp_path, old, new, message):
    with pytest.raises(InputError) as refused:
        texts(tmp_path, TEXT.replace(old, new), n=2).explain("A1", margin=0.05, whole=1)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_claim_without_a_text_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"claim of .*texts.yaml must be one of: A1; got 'A2'"):
        texts(tmp_path).explain("A2")
    with pytest.raises(InputError, match="cannot be read"):
        ClaimTexts(tmp_path / "none.yaml").explain("A1")
