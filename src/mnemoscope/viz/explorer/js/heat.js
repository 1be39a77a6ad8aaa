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
