/** A matrix to point at, with names along its sides: by pointer or arrow keys, and what stands in a cell can be carried along its row. */
import { el, rgb } from "./dom.js";

// ---- Matrices as pictures: shades of one colour for weights, of two for differences.

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

/** More names than this do not fit along a side. */
export const MOST_NAMED = 20;

/**
 * @param {(row: number, column: number) => void} pointed
 * @param {{chosen?: () => void, carried?: (row: number, from: number, to: number) => void, described?: string}} [more]
 *     chosen: a double click or Enter; carried: a cell was dragged within its row, or taken along with Shift and an arrow;
 *     described: id of the element that says what is pointed at
 */
export function pointedMatrix(pointed, { chosen, carried, described } = {}) {
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "matrix" }));
  const cross = el("i", { class: "cross" });
  const frame = el("div", { class: "frame", tabindex: 0, role: "img", "aria-describedby": described }, canvas, cross);
  const [above, left] = ["above", "left"].map((side) => el("div", { class: `labels ${side}`, "aria-hidden": "true" }));
  const node = el("div", { class: "grid" }, el("span"), above, left, frame);
  const size = { rows: 1, columns: 1 };
  let at = { row: 0, column: 0 };
  /** @type {?{row: number, column: number}} */
  let held = null;

  const point = (/** @type {number} */ row, /** @type {number} */ column) => {
    at = { row: Math.min(size.rows - 1, Math.max(0, row)), column: Math.min(size.columns - 1, Math.max(0, column)) };
    const [width, height] = [100 / size.columns, 100 / size.rows];
    Object.assign(cross.style, { left: `${at.column * width}%`, top: `${at.row * height}%`, width: `${width}%`, height: `${height}%` });
    for (const [labels, place] of /** @type {[HTMLElement, number][]} */ ([[above, at.column], [left, at.row]])) {
      [...labels.children].forEach((label, i) => label.classList.toggle("at", i === place));
    }
    pointed(at.row, at.column);
  };
  const under = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * size.columns);
    point(held?.row ?? Math.floor(((event.clientY - box.top) / box.height) * size.rows), column);
  };
  const letGo = () => {
    if (held && held.column !== at.column) carried?.(held.row, held.column, at.column);
    held = null;
  };

  frame.addEventListener("pointermove", under);
  frame.addEventListener("pointerdown", (event) => {
    under(event);
    if (carried && event.button === 0) held = { ...at };
  });
  addEventListener("pointerup", letGo);
  addEventListener("pointercancel", () => (held = null));
  if (chosen) frame.addEventListener("dblclick", chosen);
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step) {
      if (event.shiftKey && carried && step[1]) held = { ...at };
      point(at.row + step[0], at.column + step[1]);
      letGo();
    } else if (event.key === "Enter" && chosen) chosen();
    else return;
    event.preventDefault();
  });

  return {
    node,
    point,
    get at() {
      return at;
    },
    /** Draw values (row, column); `names` stand along the rows and the columns, `most` has the full colour. */
    draw(/** @type {ArrayLike<number>} */ values, /** @type {number} */ columns, /** @type {number} */ most, /** @type {{rows: string[], columns: string[], label: string}} */ names) {
      Object.assign(size, { rows: values.length / columns, columns });
      drawMatrix(canvas, values, columns, most);
      frame.setAttribute("aria-label", names.label);
      for (const [labels, words] of /** @type {[HTMLElement, string[]][]} */ ([[above, names.columns], [left, names.rows]])) {
        const fitting = words.length <= MOST_NAMED ? words : [];
        if ([...labels.children].map((label) => label.textContent).join("\n") === fitting.join("\n")) continue;
        labels.replaceChildren(...fitting.map((word) => el("span", {}, word)));
      }
      node.classList.toggle("long", columns > MOST_NAMED);
    },
  };
}
