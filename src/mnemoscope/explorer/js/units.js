/**
 * The units of a layer: the neurons of its MLP, or in their place the features of its dictionary. Both have a key and a
 * value, and one place in the page: whatever it tells of neurons it tells of features.
 *
 * @typedef {import("./weights.js").Model} Model
 * @typedef {"post"|"feature"} UnitKind   of their site
 */
import { read } from "./layers.js";

/**
 * The units of a layer that are looked at.
 *
 * @param {{cfg: import("./weights.js").Config, dictionaries: {layer: number, name: string, n: number}[]}} run
 * @param {string} chosen   `features`: these, where the layer has a dictionary
 * @param {number} layer
 * @returns {{kind: UnitKind, word: string, of: string, n: number}} `of` names the dictionary, and is empty for neurons.
 */
export function unitsOf({ cfg, dictionaries }, chosen, layer) {
  const own = dictionaries.find((one) => one.layer === layer);
  if (own && (chosen === "features" || !cfg.d_mlp)) return { kind: "feature", word: "feature", of: own.name, n: own.n };
  return { kind: "post", word: "neuron", of: "", n: cfg.d_mlp };
}

/**
 * Their weights, and what they read.
 *
 * @returns {{n: number, keys: Float32Array, values: Float32Array, input: ?((rows: Float32Array) => Float32Array)}}
 *     keys (d_model, unit), values (unit, d_model); `input` makes rows of the stream before the MLP into what keys
 *     read, but for the division of the normalisation; null: keys read something else.
 */
export function unitWeights(/** @type {Model} */ model, /** @type {number} */ layer, /** @type {UnitKind} */ kind) {
  const own = model.dictionaries.find((one) => one.layer === layer);
  if (kind === "post" || !own) {
    const mlp = (/** @type {string} */ name) => model.weights[`blocks.${layer}.mlp.${name}`].data;
    return { n: model.cfg.d_mlp, keys: mlp("W_in"), values: mlp("W_out"), input: (/** @type {Float32Array} */ rows) => read(model, rows, `blocks.${layer}.ln2`) };
  }
  const inputs = /** @type {Object<string, (rows: Float32Array) => Float32Array>} */ ({
    mlp_in: (rows) => read(model, rows, null), // before the gain
    resid_mid: (rows) => rows,
  });
  return { n: own.n, keys: own.weights.w_enc.data, values: own.weights.w_dec.data, input: inputs[own.reads] ?? null };
}
