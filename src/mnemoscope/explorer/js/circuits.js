/**
 * What the weights of a head say between tokens, along the direct path from the embeddings: scores and logits.
 *
 * Gains of the normalisations are taken in, their division is left out: as `ms.analyses.qk_circuits` and `ov_circuits`
 * with `normalisation="folded"`. A row of the OV circuit is known up to a constant that all its logits share; the mean
 * is taken off.
 *
 * @typedef {import("./weights.js").Model} Model
 */
import { project } from "./layers.js";

/** Rows as a reader with that normalisation sees them, but for the division. */
export function read(/** @type {Model} */ model, /** @type {Float32Array} */ rows, /** @type {string} */ norm) {
  const { d_model: d, normalization } = model.cfg;
  const gain = model.weights[`${norm}.w`]?.data;
  const result = rows.slice();
  for (let start = 0; start < rows.length; start += d) {
    let mean = 0;
    if (normalization?.startsWith("LN")) for (let i = 0; i < d; i++) mean += rows[start + i] / d;
    for (let i = 0; i < d; i++) result[start + i] = (rows[start + i] - mean) * (gain ? gain[i] : 1);
  }
  return result;
}

/** The matrix of one head, and its sizes. */
export function ofHead(/** @type {Model} */ model, /** @type {number} */ layer, /** @type {number} */ head, /** @type {string} */ name) {
  const { d_model: d, d_head: dHead } = model.cfg;
  return model.weights[`blocks.${layer}.attn.${name}`].data.subarray(head * d * dHead, (head + 1) * d * dHead);
}

/** Attention score between every query token and every key token, (query, key). */
export function qkCircuit(/** @type {Model} */ model, /** @type {number} */ layer, /** @type {number} */ head) {
  const { d_model: d, d_head: dHead, attn_scale: scale } = model.cfg;
  const tokens = read(model, model.weights["embed.W_E"].data, `blocks.${layer}.ln1`);
  const [q, k] = ["W_Q", "W_K"].map((name) => project(tokens, ofHead(model, layer, head, name), null, d, dHead));
  const n = q.length / dHead;
  const result = new Float32Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      for (let c = 0; c < dHead; c++) result[i * n + j] += (q[i * dHead + c] * k[j * dHead + c]) / scale;
    }
  }
  return result;
}

/** What attending to a token adds to every logit, (token, logit). */
export function ovCircuit(/** @type {Model} */ model, /** @type {number} */ layer, /** @type {number} */ head) {
  const { d_model: d, d_head: dHead } = model.cfg;
  const unembed = model.weights["unembed.W_U"];
  const nOut = unembed.shape[1];
  const tokens = read(model, model.weights["embed.W_E"].data, `blocks.${layer}.ln1`);
  const values = project(tokens, ofHead(model, layer, head, "W_V"), null, d, dHead);
  const written = read(model, project(values, ofHead(model, layer, head, "W_O"), null, dHead, d), "ln_final");
  const result = project(written, unembed.data, null, d, nOut);
  for (let start = 0; start < result.length; start += nOut) {
    let mean = 0;
    for (let i = 0; i < nOut; i++) mean += result[start + i] / nOut;
    for (let i = 0; i < nOut; i++) result[start + i] -= mean;
  }
  return result;
}
