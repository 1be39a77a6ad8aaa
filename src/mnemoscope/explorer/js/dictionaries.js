/**
 * Dictionaries of sparse features: where one writes, the activation is what its features write, and an error.
 *
 * As in `ms.with_dictionaries`: the error is what the reconstruction misses in this very pass, and stays as it is when
 * features are changed. Where nothing is changed, the activation stays the same to the bit.
 *
 * @typedef {import("./weights.js").Tensor} Tensor
 * @typedef {Object} Dictionary
 * @property {string} name
 * @property {number} layer
 * @property {string} reads       resid_pre, attn_out, resid_mid, mlp_in, mlp_out or resid_post
 * @property {string} writes      the same, but for mlp_in
 * @property {"relu"|"topk"|"jumprelu"|"groupmax"} activation
 * @property {?number} k          of topk and groupmax
 * @property {number} n           features
 * @property {boolean} error      false: the activation is the reconstruction alone
 * @property {Object<string, Tensor>} weights   w_enc (d_model, feature), b_enc, w_dec (feature, d_model), b_dec; perhaps skip (d_model, d_model) and threshold
 */
import { project, sum } from "./layers.js";

/** The features of rows, (row, feature). */
export function encode(/** @type {Dictionary} */ { n, k, activation, weights }, /** @type {Float32Array} */ rows, /** @type {number} */ d) {
  const features = project(rows, weights.w_enc.data, weights.b_enc.data, d, n);
  const bounds = weights.threshold?.data;
  for (let i = 0; i < features.length; i++) if (!(features[i] > (bounds ? bounds[i % n] : 0))) features[i] = 0;
  if (k === null) return features;
  const [wide, kept] = activation === "groupmax" ? [n / k, 1] : [n, k];
  for (let start = 0; start < features.length; start += wide) {
    const part = features.subarray(start, start + wide);
    const order = [...part.keys()].filter((i) => part[i] > 0).sort((a, b) => part[b] - part[a]);
    for (const i of order.slice(kept)) part[i] = 0;
  }
  return features;
}

/** What features write, the bias of the decoder and what a skip connection passes on included. */
export function decode(
  /** @type {Dictionary} */ { n, weights },
  /** @type {Float32Array} */ features,
  /** @type {Float32Array} */ rows,
  /** @type {number} */ d,
) {
  const written = project(features, weights.w_dec.data, weights.b_dec.data, n, d);
  return weights.skip ? sum(written, project(rows, weights.skip.data, null, d, d)) : written;
}

/**
 * An activation with what is changed at its features and its error.
 *
 * @param {Dictionary} dictionary
 * @param {Float32Array} x       What it writes.
 * @param {Float32Array} rows    What it reads.
 * @param {number} d
 * @param {(name: string, data: Float32Array, shape: number[]) => Float32Array} hook   Gives back the same data where nothing is changed.
 */
export function split(dictionary, x, rows, d, hook) {
  const { layer, n, weights } = dictionary;
  const features = encode(dictionary, rows, d);
  const written = decode(dictionary, features, rows, d);
  const error = dictionary.error ? x.map((value, i) => value - written[i]) : new Float32Array(x.length);
  const now = hook(`blocks.${layer}.hook_feature`, features, [x.length / d, n]);
  const left = hook(`blocks.${layer}.hook_error`, error, [x.length / d, d]);
  let result = dictionary.error ? x : written;
  if (now !== features) result = sum(result, project(now.map((value, i) => value - features[i]), weights.w_dec.data, null, n, d));
  if (left !== error) result = sum(result, left.map((value, i) => value - error[i]));
  return result;
}
