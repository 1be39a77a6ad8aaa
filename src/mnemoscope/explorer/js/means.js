/**
 * What an activation is replaced with: its mean over the reference sequences of a run or over a class of them, its value
 * on one that was drawn, or its value on the other sequence. Computed when first asked for, and kept.
 *
 * @typedef {import("./weights.js").Model} Model
 * @typedef {import("./edits.js").Source} Source
 * @typedef {import("./edits.js").Class} Class
 */
import { atOnce, forward, meanInPieces } from "./forward.js";

/** @type {WeakMap<Model, Map<string, any>>} */
const KNOWN = new WeakMap();

/** What is kept of a model under a name. */
function kept(/** @type {Model} */ model) {
  const known = KNOWN.get(model) ?? new Map();
  KNOWN.set(model, known);
  return known;
}

const cut = (/** @type {any} */ run, /** @type {number} */ n) => run.reference.map((/** @type {number[]} */ tokens) => tokens.slice(0, n));

/**
 * The mean over the reference sequences, cut to a length; a piece is one sequence.
 *
 * @param {any} run
 * @param {Model} model
 * @param {number} n
 * @param {Class} [within]   Of the sequences that are taken; none: all.
 * @returns {Generator<void, Source>}
 */
export function* meansInPieces(run, model, n, within) {
  const known = kept(model);
  const key = JSON.stringify(["mean", n, within]);
  let source = known.get(key);
  if (!source) {
    const inClass = (/** @type {any} */ _, /** @type {number} */ i) => !within || run.classes[within[0]][i] === within[1];
    const lengths = run.reference.map((/** @type {any} */ _, /** @type {number} */ i) => Math.min(n, run.lengths[i] ?? n));
    source = yield* meanInPieces(model, cut(run, n).filter(inClass), lengths.filter(inClass));
    known.set(key, source);
  }
  return source;
}

/**
 * Where replaced activations come from.
 *
 * @param {any} run
 * @param {Model} model
 * @param {number} n                                                Tokens of the sequence.
 * @param {Map<string, import("./weights.js").Tensor>} other        The cache of the pass over the other sequence.
 * @param {number} row                                              The reference sequence that was drawn.
 * @returns {import("./edits.js").Sources}
 */
export function sourcesOf(run, model, n, other, row) {
  const resampled = () => {
    const known = kept(model);
    const key = JSON.stringify(["resample", n, row]);
    if (!known.has(key)) known.set(key, forward(model, cut(run, n)[row]).cache);
    return known.get(key);
  };
  return {
    mean: (hook, { within }) => atOnce(meansInPieces(run, model, n, within))(hook, {}),
    patch: (hook) => /** @type {any} */ (other.get(hook)),
    resample: (hook) => resampled().get(hook),
  };
}

/** The class of a sequence, if it is one of the reference sequences. */
export function classOf(/** @type {any} */ run, /** @type {number[]} */ tokens, /** @type {string} */ latent) {
  const text = tokens.join();
  const row = run.reference.findIndex((/** @type {number[]} */ one) => one.join() === text);
  return row < 0 ? undefined : run.classes[latent][row];
}

/**
 * The reference sequence of the n-th draw: a random one, the same for every part, and not the sequence at hand.
 *
 * @returns {number} Its row.
 */
export function drawnRow(/** @type {any} */ run, /** @type {number} */ draw, /** @type {number[]} */ tokens) {
  let mixed = Math.imul(draw + 1, 0x9e3779b1); // the finaliser of MurmurHash3: every bit depends on every other
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  const first = ((mixed ^ (mixed >>> 16)) >>> 0) % run.reference.length;
  const text = tokens.join();
  const rows = cut(run, tokens.length).map((/** @type {number[]} */ one, /** @type {number} */ row) => ({ row, text: one.join() }));
  const others = [...rows.slice(first), ...rows.slice(0, first)].filter((one) => one.text !== text);
  return others.length ? others[0].row : first;
}
