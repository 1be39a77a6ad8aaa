/**
 * Weights as they are packed on the page, and checkpoints made of them.
 *
 * @typedef {{shape: number[], data: Float32Array}} Tensor
 * @typedef {{shape: number[], half: boolean, data: string}} Packed   base64 of little-endian floats
 * @typedef {Object} Config
 * @property {number} n_layers
 * @property {number} n_heads
 * @property {number} d_model
 * @property {number} d_head
 * @property {number} d_mlp          0: no MLPs
 * @property {number} n_ctx
 * @property {number} d_vocab
 * @property {number} d_vocab_out    tokens, or classes, that have a logit
 * @property {?string} normalization LN, LNPre, RMS, RMSPre, or null
 * @property {number} eps
 * @property {string} act_fn
 * @property {boolean} causal
 * @property {boolean} linear        attention without a softmax
 * @property {number} mix            share of the softmax in attention, to which a constant is added
 * @property {?number} masked        token to which no position attends
 * @property {number} attn_scale     what scores are divided by
 * @property {?Rotary} rotary        null: positions are added to the stream, or to keys
 * @typedef {{dim: number, base: number, adjacent: boolean}} Rotary   pairs are neighbours, or halves
 * @typedef {import("./dictionaries.js").Dictionary} Dictionary
 * @typedef {import("./clamps.js").Clamp} Clamp
 * @typedef {{cfg: Config, weights: Object<string, Tensor>, dictionaries: Dictionary[], clamps?: Clamp[]}} Model
 */

/** Floats of half precision, given as their bits. */
function fromHalf(/** @type {number} */ bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

/** @returns {Tensor} The packed tensor. */
export function unpack(/** @type {Packed} */ packed) {
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const size = packed.shape.reduce((product, n) => product * n, 1);
  if (bytes.length !== size * (packed.half ? 2 : 4)) throw new Error("a tensor is not as long as its shape says");
  const view = new DataView(bytes.buffer);
  const data = new Float32Array(size);
  for (let i = 0; i < size; i++) {
    data[i] = packed.half ? fromHalf(view.getUint16(2 * i, true)) : view.getFloat32(4 * i, true);
  }
  return { shape: packed.shape, data };
}

/**
 * The models of a run, one a checkpoint, with the clamps of its training or without; a tensor is unpacked when it is
 * first needed.
 *
 * @param {Packed[]} tensors   Of all runs; those that several checkpoints share stand there once.
 * @param {(run: any) => Object<string, IdealPart>} [ideals]   The ideal parts of a run's task.
 * @returns {(run: any, checkpoint: number, withClamps?: boolean) => Model}
 */
export function opener(tensors, ideals = () => ({})) {
  /** @type {Map<number, Tensor>} */
  const unpacked = new Map();
  const tensor = (/** @type {number} */ number) => {
    let found = unpacked.get(number);
    if (!found) unpacked.set(number, (found = unpack(tensors[number])));
    return found;
  };
  const all = (/** @type {Object<string, number>} */ numbers) =>
    Object.fromEntries(Object.entries(numbers).map(([name, number]) => [name, tensor(number)]));
  const models = new Map();
  /** The clamps in force at a checkpoint. */
  const clampsOf = (/** @type {any} */ run, /** @type {number} */ checkpoint) =>
    run.clamps.parts
      .map((/** @type {any} */ one, /** @type {number} */ i) => ({
        ...one,
        share: run.clamps.shares[checkpoint][i],
        rows: one.rows === null ? null : tensor(one.rows),
        value: one.ideal ? ideals(run)[one.ideal] : null,
      }))
      .filter((/** @type {Clamp} */ { share }) => share > 0);
  return (run, checkpoint, withClamps = false) => {
    const numbers = run.checkpoints[checkpoint];
    const changed = withClamps ? run.clamps.weights[checkpoint] : numbers;
    let model = models.get(changed);
    if (!model) {
      const dictionaries = (run.dictionaries ?? []).map((/** @type {any} */ one) => ({ ...one, weights: all(one.tensors) }));
      const clamps = withClamps ? clampsOf(run, checkpoint) : [];
      models.set(changed, (model = { cfg: run.cfg, weights: all({ ...numbers, ...changed }), dictionaries, clamps }));
    }
    return model;
  };
}

// ---- What the page holds, refused where it is not as it was written.

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

/** The CRC-32 of a text of ASCII, as zlib has it. */
export function checksum(/** @type {string} */ text) {
  let sum = ~0;
  for (let i = 0; i < text.length; i++) sum = CRC[(sum ^ text.charCodeAt(i)) & 255] ^ (sum >>> 8);
  return ~sum >>> 0;
}

/** The JSON of a script element; its `data-check` is the CRC-32 of the text. */
export function payload(/** @type {?HTMLElement} */ element) {
  const text = element?.textContent ?? "";
  if (checksum(text) !== Number(element?.dataset.check)) {
    throw new Error("This page is damaged: what it holds is not what was written. Write it anew with `mnemoscope explore`.");
  }
  return JSON.parse(text);
}
