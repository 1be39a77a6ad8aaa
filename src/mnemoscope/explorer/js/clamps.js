/**
 * The clamps of training: an activation, or the output, with what a clamp puts there in its place.
 *
 * As `ms.analyses.with_clamps` does it: a clamp acts before the edits at its place, and one that reads an activation
 * reads what edits left there.
 *
 * @typedef {import("./weights.js").Tensor} Tensor
 * @typedef {import("./edits.js").Site} Site
 * @typedef {Object} Clamp
 * @property {"zero"|"scale"|"knockout"|"pattern"|"ideal"|"weight"} kind   weight: it is in the weights, or changes nothing
 * @property {Site[]} sites         negative positions are from the end; none: the logits
 * @property {number} share         the part of the change that is in force
 * @property {?number} factor       of scale
 * @property {?Tensor} rows         of pattern (query, key), where no token changes it; NaN: the row stays
 * @property {string} mechanism     of pattern, where tokens do
 * @property {number} period        at whose places tokens are compared
 * @property {?IdealPart} value     of ideal
 * @property {Site[]} reads         of ideal
 */
import { hookName, ranges } from "./edits.js";
import { mechanismRows } from "./mechanisms.js";

export const LOGITS = "logits";
const BY_QUERY = ["scores", "pattern"];

/** The hook point at which a clamp acts; none: it is in the weights. */
export function pointOf(/** @type {Clamp} */ { kind, sites }) {
  if (kind === "weight") return "";
  return sites.length ? hookName(sites[0]) : LOGITS;
}

/** Whether a clamp puts something into the stream, or the logits, that no part adds. */
export const strays = (/** @type {Clamp} */ clamp) => /^logits$|hook_resid|hook_attn_out/.test(pointOf(clamp));

/** A place that exists in a sequence of `n` tokens, with positions from the start; null: it has none. */
function placed(/** @type {Site} */ site, /** @type {number} */ n) {
  const found = { ...site };
  for (const axis of /** @type {("pos"|"key")[]} */ (["pos", "key"])) {
    const at = site[axis];
    if (at === undefined) continue;
    if (at >= n || at < -n) return null;
    found[axis] = at < 0 ? n + at : at;
  }
  return found;
}

/** Whether a sequence of `n` tokens lacks a place of a clamp, which then does not act there. */
export const lacks = (/** @type {Clamp} */ { sites }, /** @type {number} */ n) => sites.some((site) => placed(site, n) === null);

/** The activation at a site, without the axis of heads where it names one. */
function readAt(/** @type {Map<string, Tensor>} */ cache, /** @type {Site} */ site) {
  const { data, shape } = /** @type {Tensor} */ (cache.get(hookName(site)));
  if (site.head === undefined) return data;
  const all = ranges({ kind: site.kind, head: site.head }, shape);
  const result = new Float32Array(all.reduce((size, [start, end]) => size + end - start, 0));
  let size = 0;
  for (const [start, end] of all) {
    result.set(data.subarray(start, end), size);
    size += end - start;
  }
  return result;
}

/** The rows of a pattern for a sequence, (query, key); NaN: the row stays. */
function patternOf(/** @type {Clamp} */ { rows, mechanism, period }, /** @type {number[]} */ tokens) {
  const n = tokens.length;
  const result = new Float32Array(n * n).fill(NaN);
  if (rows) for (let query = 0; query < n; query++) result.set(rows.data.subarray(query * rows.shape[1], query * rows.shape[1] + n), query * n);
  else for (const [query, row] of Object.entries(mechanismRows(mechanism, tokens, period))) result.set(row, Number(query) * n);
  return result;
}

/**
 * The value that a clamp has in store, and the place in it of an entry of the activation; null: it has none.
 *
 * @param {Clamp} clamp
 * @param {number[]} tokens
 * @param {Map<string, Tensor>} cache
 * @param {number[]} shape
 * @returns {?{value: Float32Array, at: (i: number) => number}}
 */
function stored(clamp, tokens, cache, shape) {
  const pattern = clamp.kind === "pattern";
  if (!pattern && clamp.kind !== "ideal") return null;
  const value = pattern ? patternOf(clamp, tokens) : /** @type {IdealPart} */ (clamp.value)(tokens, ...clamp.reads.map((site) => readAt(cache, site)));
  const [site] = clamp.sites;
  if (!pattern && site?.head === undefined) return { value, at: (i) => i };
  if (BY_QUERY.includes(site.kind)) return { value, at: (i) => i % (shape[1] * shape[2]) };
  return { value, at: (i) => Math.floor(i / (shape[1] * shape[2])) * shape[2] + (i % shape[2]) };
}

/**
 * A copy of an activation, or of the logits, with a clamp in force.
 *
 * @param {Tensor} old
 * @param {Clamp} clamp
 * @param {number[]} tokens
 * @param {Map<string, Tensor>} cache   Activations so far.
 * @returns {Tensor}
 */
export function clamped(old, clamp, tokens, cache) {
  const data = old.data.slice();
  const own = stored(clamp, tokens, cache, old.shape);
  const { kind, sites, share } = clamp;
  const [keeps, weighs] = [sites[0]?.kind === "scores", kind === "knockout" && share < 1];
  const places = sites.map((site) => placed(site, tokens.length)).filter((site) => site !== null);
  const parts = sites.length ? places.flatMap((site) => ranges(site, old.shape)) : [[0, data.length]];
  for (const [start, end] of parts) {
    for (let i = start; i < end; i++) {
      const was = old.data[i];
      if (keeps && was === -Infinity) continue;
      let value = 0;
      if (own) value = own.value[own.at(i)];
      else if (kind === "scale") value = was * (clamp.factor ?? 1);
      else if (kind === "knockout") value = weighs ? was + Math.log1p(-share) : -Infinity;
      if (Number.isNaN(value) && sites[0]?.kind === "pattern") continue;
      data[i] = share === 1 || weighs ? value : (1 - share) * was + share * value;
    }
  }
  return { shape: old.shape, data };
}
