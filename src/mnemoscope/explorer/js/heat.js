/** Matrices as pictures: shades of one colour for weights, of two for differences. */
import { rgb } from "./dom.js";

/** What has the full colour: all of a query's attention, or where there is no softmax or a difference the largest. */
export function fullColour(/** @type {ArrayLike<number>} */ values, /** @type {boolean} */ shares) {
  return shares ? 1 : Array.from(values).reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
}

/**
 * Draw a matrix, a pixel a cell; the style of the canvas makes it large.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {ArrayLike<number>} values   (row, column)
 * @param {number} n                   columns
 * @param {number} most                the value of the full colour; negative values have the other one
 */
export function drawMatrix(canvas, values, n, most) {
  const rows = values.length / n;
  if (canvas.width !== n || canvas.height !== rows) [canvas.width, canvas.height] = [n, rows];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(n, rows);
  const [more, less] = [rgb("more"), rgb("less")];
  for (let i = 0; i < values.length; i++) {
    const colour = values[i] < 0 ? less : more;
    for (let channel = 0; channel < 3; channel++) image.data[4 * i + channel] = colour[channel];
    image.data[4 * i + 3] = 255 * Math.min(1, Math.abs(values[i]) / (most || 1));
  }
  context.putImageData(image, 0, 0);
}

const MOST_CELLS = 32;

/**
 * Draw a pattern (query, key) as a small picture. Of a long one each cell stands for a square of the pattern, with its
 * strongest value: a browser would leave out most of them.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array} pattern
 * @param {boolean} shares   as of `fullColour`
 */
export function drawSmall(canvas, pattern, shares) {
  const n = Math.sqrt(pattern.length);
  const side = Math.ceil(n / MOST_CELLS);
  const cells = Math.ceil(n / side);
  const values = new Float32Array(cells * cells);
  pattern.forEach((value, i) => {
    const at = Math.floor(Math.floor(i / n) / side) * cells + Math.floor((i % n) / side);
    if (Math.abs(value) > Math.abs(values[at])) values[at] = value;
  });
  drawMatrix(canvas, values, cells, fullColour(values, shares));
}
