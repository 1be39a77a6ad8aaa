/**
 * Means of activations over the reference sequences of a run, computed when first asked for and kept.
 *
 * @typedef {import("./weights.js").Model} Model
 * @typedef {import("./edits.js").Source} Source
 */
import { meanInPieces } from "./forward.js";
import { atOnce } from "./pieces.js";

/** @type {WeakMap<Model, Map<string, Source>>} */
const KNOWN = new WeakMap();

/**
 * The mean over the reference sequences, cut to a length; a piece is one sequence.
 *
 * @returns {Generator<void, Source>}
 */
export function* meansInPieces(/** @type {any} */ run, /** @type {Model} */ model, /** @type {number} */ n) {
  const known = KNOWN.get(model) ?? new Map();
  KNOWN.set(model, known);
  const key = String(n);
  let source = known.get(key);
  if (!source) {
    source = yield* meanInPieces(model, run.reference.map((/** @type {number[]} */ tokens) => tokens.slice(0, n)));
    known.set(key, source);
  }
  return source;
}

/** The same at once. */
export function meansOf(/** @type {any} */ run, /** @type {Model} */ model, /** @type {number} */ n) {
  return atOnce(meansInPieces(run, model, n));
}
