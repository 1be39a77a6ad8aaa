"""Small pictures of attention."""

import numpy as np

from tests.explorer.chromium import computed, needs_chromium

BODY = """
return content.map((pattern) => {
  const canvas = document.createElement("canvas");
  drawSmall(canvas, new Float32Array(pattern), true);
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  return { width, height, strength: Array.from({ length: width * height }, (_, i) => data[4 * i + 3]) };
});
"""


def pattern(n: int, query: int, key: int) -> list[float]:
    weights = np.zeros((n, n))
    weights[query, key] = 1
    return weights.ravel().tolist()


@needs_chromium
def test_a_small_picture_of_a_long_pattern_keeps_what_is_strong(tmp_path):
    """Of 70 positions three make a cell; of 5 each has its own."""
    long, short = computed(("matrix",), BODY, [pattern(70, 68, 31), pattern(5, 4, 2)], tmp_path)
    assert (long["width"], long["height"]) == (24, 24)
    assert np.flatnonzero(long["strength"]).tolist() == [22 * 24 + 10]
    assert max(long["strength"]) == 255
    assert (short["width"], short["height"]) == (5, 5)
    assert np.flatnonzero(short["strength"]).tolist() == [4 * 5 + 2]
