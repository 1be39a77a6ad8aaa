/**
 * The parts of a transformer as plain functions of rows of numbers.
 *
 * Sums are formed in double precision and kept in single precision, so that they differ from TransformerLens's by
 * rounding only.
 */

const ROOT = Math.sqrt(2 / Math.PI);

/** The error function, to 1.5e-7 (Abramowitz & Stegun 7.1.26). */
function erf(/** @type {number} */ x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - series * Math.exp(-x * x));
}

const tanhGelu = (/** @type {number} */ x) => 0.5 * x * (1 + Math.tanh(ROOT * (x + 0.044715 * x ** 3)));

/** @type {Object<string, (x: number) => number>} */
export const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  gelu_new: tanhGelu,
  gelu_fast: tanhGelu,
  gelu_pytorch_tanh: tanhGelu,
  silu: (x) => x / (1 + Math.exp(-x)),
  identity: (x) => x,
};

/**
 * Rows times a matrix, plus a bias.
 *
 * @param {Float32Array} rows       (row, d_in)
 * @param {Float32Array} matrix     (d_in, d_out)
 * @param {?Float32Array} bias      (d_out)
 * @param {number} dIn
 * @param {number} dOut
 * @returns {Float32Array} (row, d_out)
 */
export function project(rows, matrix, bias, dIn, dOut) {
  const n = rows.length / dIn;
  const result = new Float32Array(n * dOut);
  const sum = new Float64Array(dOut);
  for (let row = 0; row < n; row++) {
    if (bias) sum.set(bias);
    else sum.fill(0);
    for (let i = 0; i < dIn; i++) {
      const x = rows[row * dIn + i];
      if (x === 0) continue;
      for (let j = 0, at = i * dOut; j < dOut; j++, at++) sum[j] += x * matrix[at];
    }
    result.set(sum, row * dOut);
  }
  return result;
}

/** @returns {Float32Array} */
export function sum(/** @type {Float32Array} */ one, /** @type {Float32Array} */ other) {
  return one.map((value, i) => value + other[i]);
}

/**
 * Normalised rows, and what each was divided by; `kind` null leaves them as they are.
 *
 * @param {Float32Array} rows
 * @param {number} width
 * @param {{kind: ?string, eps: number, w?: Float32Array, b?: Float32Array}} norm
 * @returns {{rows: Float32Array, scale: Float32Array}}
 */
export function normalise(rows, width, norm) {
  const n = rows.length / width;
  const scale = new Float32Array(n).fill(1);
  if (!norm.kind) return { rows, scale };
  const centred = norm.kind.startsWith("LN");
  const result = new Float32Array(rows.length);
  for (let row = 0; row < n; row++) {
    const at = row * width;
    let mean = 0;
    if (centred) for (let i = 0; i < width; i++) mean += rows[at + i] / width;
    let square = 0;
    for (let i = 0; i < width; i++) square += (rows[at + i] - mean) ** 2 / width;
    scale[row] = Math.sqrt(square + norm.eps);
    for (let i = 0; i < width; i++) {
      result[at + i] = ((rows[at + i] - mean) / scale[row]) * (norm.w ? norm.w[i] : 1) + (norm.b ? norm.b[i] : 0);
    }
  }
  return { rows: result, scale };
}

/** Softmax over `n` numbers from `start`, in place; a row of minus infinity becomes zeros. */
export function softmax(/** @type {Float32Array} */ values, start = 0, n = values.length) {
  let most = -Infinity;
  for (let i = start; i < start + n; i++) most = Math.max(most, values[i]);
  let sum = 0;
  for (let i = start; i < start + n; i++) sum += Math.exp(values[i] - most);
  for (let i = start; i < start + n; i++) values[i] = most === -Infinity ? 0 : Math.exp(values[i] - most) / sum;
  return values;
}

// ---- circuits

/**
 * What the weights of a head say between tokens, along the direct path from the embeddings: scores and logits.
 *
 * Gains of the normalisations are taken in, their division is left out: as `ms.analyses.qk_circuits` and `ov_circuits`
 * with `normalisation="folded"`. A row of the OV circuit is known up to a constant that all its logits share; the mean
 * is taken off.
 *
 * @typedef {import("./weights.js").Model} Model
 */

/** Rows as a reader with that normalisation sees them, but for the division; `norm` null: before the gain too. */
export function read(/** @type {Model} */ model, /** @type {Float32Array} */ rows, /** @type {?string} */ norm) {
  const { d_model: d, normalization } = model.cfg;
  const gain = norm === null ? undefined : model.weights[`${norm}.w`]?.data;
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

/**
 * Queries or keys, (position, head, entry), with each pair of entries turned by its angle at the position.
 *
 * @param {Float32Array} rows
 * @param {number} dHead
 * @param {number} nHeads
 * @param {import("./weights.js").Rotary} rotary
 */
export function turn(rows, dHead, nHeads, { dim, base, adjacent }) {
  const result = rows.slice();
  for (let row = 0; row * dHead < rows.length; row++) {
    const pos = Math.floor(row / nHeads);
    for (let pair = 0; pair < dim / 2; pair++) {
      const angle = pos / base ** ((2 * pair) / dim);
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      const first = row * dHead + (adjacent ? 2 * pair : pair);
      const second = first + (adjacent ? 1 : dim / 2);
      result[first] = rows[first] * cos - rows[second] * sin;
      result[second] = rows[second] * cos + rows[first] * sin;
    }
  }
  return result;
}
