/**
 * The forward pass of a HookedTransformer on one sequence, with interventions in force.
 *
 * Every activation is kept under TransformerLens's hook name, as the rest of the pass sees it. `attn.hook_result`, what
 * each head adds to the residual stream, is always there.
 *
 * @typedef {import("./weights.js").Model} Model
 * @typedef {import("./weights.js").Tensor} Tensor
 * @typedef {import("./edits.js").Edit} Edit
 * @typedef {import("./edits.js").Site} Site
 * @typedef {import("./edits.js").Sources} Sources
 * @typedef {{logits: Tensor, cache: Map<string, Tensor>}} Pass
 */
import { LOGITS, clamped, pointOf } from "./clamps.js";
import { split } from "./dictionaries.js";
import { edited, hookName, ranges, reaches } from "./edits.js";
import { ACTIVATIONS, normalise, project, softmax, sum, turn } from "./layers.js";

/** What an MLP reads before gain and bias, where a dictionary reads it. */
const NORMALISED = "ln2.hook_normalized";

/**
 * @param {Model} model
 * @param {number[]} tokens
 * @param {Edit[]} [edits]      Those at one place act in this order.
 * @param {Sources} [sources]   Where `mean` and `patch` take activations from.
 * @returns {Pass}
 */
export function forward(model, tokens, edits = [], sources = {}) {
  const { cfg, weights, dictionaries, clamps = [] } = model;
  const { d_model: d, n_heads: nHeads, d_head: dHead } = cfg;
  const n = tokens.length;
  const W = (/** @type {string} */ name) => weights[name]?.data;
  /** @type {Map<string, Tensor>} */
  const cache = new Map();

  /** An activation as a dictionary that writes there splits it. */
  const spliced = (/** @type {string} */ name, /** @type {Float32Array} */ x) => {
    const own = dictionaries.find(({ layer, writes }) => hookName({ kind: writes, layer }) === name);
    if (!own) return x;
    const place = own.reads === "mlp_in" ? `blocks.${own.layer}.${NORMALISED}` : hookName({ kind: own.reads, layer: own.layer });
    const rows = own.reads === own.writes ? x : /** @type {Tensor} */ (cache.get(place)).data;
    return split(own, x, rows, d, hook);
  };

  /** With the clamps of training at that place. */
  const held = (/** @type {string} */ name, /** @type {Tensor} */ tensor) =>
    clamps.filter((clamp) => pointOf(clamp) === name).reduce((now, clamp) => clamped(now, clamp, tokens, cache), tensor);

  /** A hook point: clamps act, then edits, and what they leave is kept. */
  const hook = (/** @type {string} */ name, /** @type {Float32Array} */ data, /** @type {number[]} */ shape) => {
    let tensor = held(name, { shape, data: spliced(name, data) });
    for (const edit of edits) {
      if (edit.site && hookName(edit.site) === name) tensor = edited(tensor, edit, edit.site, sources);
    }
    cache.set(name, tensor);
    return tensor.data;
  };

  const norm = (/** @type {string} */ name, /** @type {Float32Array} */ rows, kept = true) => {
    const how = { kind: cfg.normalization, eps: cfg.eps, w: W(`${name}.w`), b: W(`${name}.b`) };
    const result = normalise(rows, d, how);
    if (kept && cfg.normalization) cache.set(`${name}.hook_scale`, { shape: [n, 1], data: result.scale });
    return result.rows;
  };

  /** What a reader reads where edges to it are edited; null where none is. */
  const read = (
    /** @type {Site|"logits"} */ reader,
    /** @type {string} */ through,
    /** @type {Float32Array} */ stream,
  ) => {
    const own = edits.filter((edit) => edit.edge && reaches(edit.edge, reader, through));
    if (!own.length) return null;
    const result = stream.slice();
    /** @type {Map<string, Tensor>} */
    const changed = new Map();
    for (const edit of own) {
      const { writer, pos } = /** @type {import("./edits.js").Edge} */ (edit.edge);
      const written = { ...writer, kind: writer.kind === "z" ? "result" : writer.kind, pos };
      const name = hookName(written);
      const before = changed.get(name) ?? /** @type {Tensor} */ (cache.get(name));
      const after = edited(before, edit, written, sources);
      changed.set(name, after);
      for (const [start, end] of ranges(written, before.shape)) {
        const row = Math.floor(start / (before.shape.length === 3 ? nHeads * d : d)) * d;
        for (let i = 0; i < end - start; i++) result[row + i] += after.data[start + i] - before.data[start + i];
      }
    }
    return result;
  };

  const attention = (/** @type {number} */ layer, /** @type {Float32Array} */ stream) => {
    const name = `blocks.${layer}.attn`;
    const normed = norm(`blocks.${layer}.ln1`, stream);
    const [asked, offered, v] = ["q", "k", "v"].map((through) => {
      const matrix = W(`${name}.W_${through.toUpperCase()}`);
      const bias = W(`${name}.b_${through.toUpperCase()}`);
      const all = new Float32Array(n * nHeads * dHead);
      for (let head = 0; head < nHeads; head++) {
        const other = read({ kind: "z", layer, head }, through, stream);
        const rows = other ? norm(`blocks.${layer}.ln1`, other, false) : normed;
        const part = matrix.subarray(head * d * dHead, (head + 1) * d * dHead);
        const own = project(rows, part, bias.subarray(head * dHead, (head + 1) * dHead), d, dHead);
        for (let pos = 0; pos < n; pos++) {
          all.set(own.subarray(pos * dHead, (pos + 1) * dHead), (pos * nHeads + head) * dHead);
        }
      }
      return hook(`${name}.hook_${through}`, all, [n, nHeads, dHead]);
    });

    const [q, k] = [asked, offered].map((rows, i) =>
      cfg.rotary ? hook(`${name}.hook_rot_${"qk"[i]}`, turn(rows, dHead, nHeads, cfg.rotary), [n, nHeads, dHead]) : rows,
    );
    const distances = W(`${name}.W_rel`);
    /** @type {Float32Array} */
    let scores = new Float32Array(nHeads * n * n).fill(cfg.linear ? 0 : -Infinity);
    for (let head = 0; head < nHeads; head++) {
      for (let query = 0; query < n; query++) {
        const last = cfg.causal ? query : n - 1;
        for (let key = 0; key <= last; key++) {
          if (tokens[key] === cfg.masked) continue;
          let sum = 0;
          const [a, b] = [(query * nHeads + head) * dHead, (key * nHeads + head) * dHead];
          const away = (query - key) * dHead;
          for (let i = 0; i < dHead; i++) sum += q[a + i] * (distances ? k[b + i] + distances[away + i] : k[b + i]);
          scores[(head * n + query) * n + key] = sum / cfg.attn_scale;
        }
      }
    }
    scores = hook(`${name}.hook_attn_scores`, scores, [nHeads, n, n]);
    /** @type {Float32Array} */
    let pattern = scores.slice();
    if (!cfg.linear) for (let row = 0; row < nHeads * n; row++) softmax(pattern, row * n, n);
    if (cfg.mix < 1) pattern = pattern.map((weight, i) => cfg.mix * weight + (scores[i] === -Infinity ? 0 : 1 - cfg.mix));
    pattern = hook(`${name}.hook_pattern`, pattern, [nHeads, n, n]);

    /** @type {Float32Array} */
    let z = new Float32Array(n * nHeads * dHead);
    const sum = new Float64Array(dHead);
    for (let head = 0; head < nHeads; head++) {
      for (let query = 0; query < n; query++) {
        sum.fill(0);
        for (let key = 0; key < n; key++) {
          const weight = pattern[(head * n + query) * n + key];
          if (weight === 0) continue;
          for (let i = 0, at = (key * nHeads + head) * dHead; i < dHead; i++, at++) sum[i] += weight * v[at];
        }
        z.set(sum, (query * nHeads + head) * dHead);
      }
    }
    z = hook(`${name}.hook_z`, z, [n, nHeads, dHead]);

    const result = hook(`${name}.hook_result`, results(model, layer, z), [n, nHeads, d]);
    const out = new Float32Array(n * d);
    const bias = W(`${name}.b_O`);
    for (let pos = 0; pos < n; pos++) {
      for (let i = 0; i < d; i++) {
        let total = bias[i];
        for (let head = 0; head < nHeads; head++) total += result[(pos * nHeads + head) * d + i];
        out[pos * d + i] = total;
      }
    }
    return hook(`blocks.${layer}.hook_attn_out`, out, [n, d]);
  };

  const mlp = (/** @type {number} */ layer, /** @type {Float32Array} */ stream) => {
    const name = `blocks.${layer}.mlp`;
    const input = read({ kind: "mlp_out", layer }, "", stream) ?? stream;
    const rows = norm(`blocks.${layer}.ln2`, input);
    if (dictionaries.some((one) => one.layer === layer && one.reads === "mlp_in")) {
      const before = normalise(input, d, { kind: cfg.normalization, eps: cfg.eps });
      cache.set(`blocks.${layer}.${NORMALISED}`, { shape: [n, d], data: before.rows });
    }
    const shape = [n, cfg.d_mlp];
    const pre = hook(`${name}.hook_pre`, project(rows, W(`${name}.W_in`), W(`${name}.b_in`), d, cfg.d_mlp), shape);
    const post = hook(`${name}.hook_post`, pre.map(ACTIVATIONS[cfg.act_fn]), shape);
    return hook(`blocks.${layer}.hook_mlp_out`, project(post, W(`${name}.W_out`), W(`${name}.b_out`), cfg.d_mlp, d), [n, d]);
  };

  const embedded = new Float32Array(n * d);
  tokens.forEach((token, pos) => embedded.set(W("embed.W_E").subarray(token * d, (token + 1) * d), pos * d));
  /** @type {Float32Array} */
  let stream = hook("hook_embed", embedded, [n, d]);
  if (!cfg.rotary) stream = sum(stream, hook("hook_pos_embed", W("pos_embed.W_pos").slice(0, n * d), [n, d]));
  for (let layer = 0; layer < cfg.n_layers; layer++) {
    stream = hook(`blocks.${layer}.hook_resid_pre`, stream, [n, d]);
    stream = sum(stream, attention(layer, stream));
    if (cfg.d_mlp) {
      stream = hook(`blocks.${layer}.hook_resid_mid`, stream, [n, d]);
      stream = sum(stream, mlp(layer, stream));
    }
    stream = hook(`blocks.${layer}.hook_resid_post`, stream, [n, d]);
  }
  const last = norm("ln_final", read("logits", "", stream) ?? stream);
  const unembed = weights["unembed.W_U"];
  const logits = project(last, unembed.data, W("unembed.b_U"), d, unembed.shape[1]);
  return { logits: held(LOGITS, { shape: [n, unembed.shape[1]], data: logits }), cache };
}

/** What every head of a layer adds to the residual stream: z W_O, (pos, head, d_model). */
export function results(/** @type {Model} */ model, /** @type {number} */ layer, /** @type {Float32Array} */ z) {
  const { d_model: d, n_heads: nHeads, d_head: dHead } = model.cfg;
  const n = z.length / (nHeads * dHead);
  const all = new Float32Array(n * nHeads * d);
  const matrix = model.weights[`blocks.${layer}.attn.W_O`].data;
  for (let head = 0; head < nHeads; head++) {
    const part = matrix.subarray(head * dHead * d, (head + 1) * dHead * d);
    for (let pos = 0; pos < n; pos++) {
      const at = pos * nHeads + head;
      all.set(project(z.subarray(at * dHead, (at + 1) * dHead), part, null, dHead, d), at * d);
    }
  }
  return all;
}

/**
 * The mean of every activation over sequences of one length, without their padding: a source for `mean`. A piece is one
 * sequence. At a position that no sequence reaches the mean is zero.
 *
 * @param {Model} model
 * @param {number[][]} sequences
 * @param {number[]} lengths      Of the sequences without padding.
 * @returns {Generator<void, import("./edits.js").Source>}
 */
export function* meanInPieces(model, sequences, lengths) {
  /** @type {Map<string, {shape: number[], data: Float64Array}>} */
  const sums = new Map();
  const reached = (sequences[0] ?? []).map((_, pos) => lengths.filter((length) => length > pos).length);
  for (const [row, tokens] of sequences.entries()) {
    for (const [name, { shape, data }] of forward(model, tokens).cache) {
      let total = sums.get(name);
      if (!total) sums.set(name, (total = { shape, data: new Float64Array(data.length) }));
      const byQuery = /attn_scores$|pattern$/.test(name); // (head, query, key); others begin with the position
      const width = byQuery ? shape[2] : data.length / shape[0];
      for (let i = 0; i < data.length; i++) {
        const pos = Math.floor(i / width) % (byQuery ? shape[1] : shape[0]);
        if (pos < lengths[row]) total.data[i] += data[i] / reached[pos];
      }
    }
    yield;
  }
  return (hook) => {
    const { shape, data } = /** @type {{shape: number[], data: Float64Array}} */ (sums.get(hook));
    return { shape, data: Float32Array.from(data) };
  };
}

// ---- Work that is done a few milliseconds at a time, so that the page stays at hand.

const PIECE = 8;

/**
 * Do the work piece by piece, as long as it is wanted: a new state of the page starts anew.
 *
 * @param {Generator<void, void>} work
 * @param {() => boolean} wanted
 */
export function inPieces(work, wanted) {
  setTimeout(() => {
    if (!wanted()) return;
    const start = performance.now();
    while (performance.now() - start < PIECE) if (work.next().done) return;
    inPieces(work, wanted);
  });
}

/**
 * All pieces at once.
 *
 * @template T
 * @param {Generator<void, T>} work
 * @returns {T}
 */
export function atOnce(work) {
  let step = work.next();
  while (!step.done) step = work.next();
  return step.value;
}
