/**
 * What a pass says: probabilities, and what every part adds directly to a difference of two logits.
 *
 * Direct logit attribution takes the final normalisation as it divides on this sequence: the shares of all parts and
 * of the biases then add up to the difference itself.
 *
 * @typedef {import("./weights.js").Model} Model
 * @typedef {import("./weights.js").Tensor} Tensor
 * @typedef {import("./forward.js").Pass} Pass
 * @typedef {{name: string, site: ?import("./edits.js").Site, value: number}} Share
 */
import { strays } from "./clamps.js";
import { hookName } from "./edits.js";
import { softmax } from "./layers.js";
import { component, embeddingsIn } from "./naming.js";
import { unitWeights } from "./units.js";
import { unpack } from "./weights.js";

/** What stands for biases where clamps of training put something that no part adds. */
export const HELD = "biases and clamps";

/** A row of a tensor of rows. */
export function row(/** @type {Tensor} */ tensor, /** @type {number} */ pos) {
  const width = tensor.data.length / tensor.shape[0];
  return tensor.data.subarray(pos * width, (pos + 1) * width);
}

/** The attention of one head, (query, key). */
export function headPattern(/** @type {Pass} */ pass, /** @type {number} */ layer, /** @type {number} */ head) {
  const { shape, data } = /** @type {Tensor} */ (pass.cache.get(`blocks.${layer}.attn.hook_pattern`));
  return data.subarray(head * shape[1] ** 2, (head + 1) * shape[1] ** 2);
}

/** The distribution over tokens after a position. */
export function probabilities(/** @type {Pass} */ pass, /** @type {number} */ pos) {
  return softmax(row(pass.logits, pos).slice());
}

/** Tokens from the likeliest on. */
export function ranked(/** @type {ArrayLike<number>} */ values, n = values.length) {
  return [...Array(values.length).keys()].sort((a, b) => values[b] - values[a]).slice(0, n);
}

/** The logit of one token minus that of another. */
export function margin(/** @type {Pass} */ pass, /** @type {number} */ pos, answer = 0, foil = 0) {
  const logits = row(pass.logits, pos);
  return logits[answer] - logits[foil];
}

/** The direction in the residual stream, before the final normalisation divides, that tells the two tokens apart. */
function direction(/** @type {Model} */ model, /** @type {number} */ answer, /** @type {number} */ foil) {
  const { cfg, weights } = model;
  const unembed = weights["unembed.W_U"];
  const nOut = unembed.shape[1];
  const gain = weights["ln_final.w"]?.data;
  const result = new Float64Array(cfg.d_model);
  for (let i = 0; i < cfg.d_model; i++) {
    result[i] = (unembed.data[i * nOut + answer] - unembed.data[i * nOut + foil]) * (gain ? gain[i] : 1);
  }
  if (cfg.normalization?.startsWith("LN")) {
    const mean = result.reduce((total, value) => total + value, 0) / cfg.d_model;
    return result.map((value) => value - mean);
  }
  return result;
}

/**
 * What each part adds directly to the logit of `answer` minus that of `foil`.
 *
 * @param {Model} model
 * @param {Pass} pass
 * @param {number} pos
 * @param {number} answer
 * @param {number} foil
 * @returns {Share[]} Embeddings, heads and MLPs in their order, then the biases of all layers and of the unembedding,
 *   with what clamps of training put where no part adds it.
 */
export function attribution(model, pass, pos, answer, foil) {
  const { cfg, weights } = model;
  const along = direction(model, answer, foil);
  const scale = pass.cache.get("ln_final.hook_scale")?.data[pos] ?? 1;
  const share = (/** @type {ArrayLike<number>} */ vector, start = 0) => {
    let sum = 0;
    for (let i = 0; i < cfg.d_model; i++) sum += vector[start + i] * along[i];
    return sum / scale;
  };
  const written = (/** @type {string} */ hook, index = 0, n = 1) =>
    share(/** @type {Tensor} */ (pass.cache.get(hook)).data, (pos * n + index) * cfg.d_model);
  /** @type {Share[]} */
  const found = embeddingsIn(cfg).map((site) => ({ name: component(site), site, value: written(hookName(site)) }));
  let bias = weights["unembed.b_U"].data[answer] - weights["unembed.b_U"].data[foil];
  const shift = weights["ln_final.b"]?.data;
  if (shift) {
    const { data, shape } = weights["unembed.W_U"];
    shift.forEach((value, i) => (bias += value * (data[i * shape[1] + answer] - data[i * shape[1] + foil])));
  }
  for (let layer = 0; layer < cfg.n_layers; layer++) {
    for (let head = 0; head < cfg.n_heads; head++) {
      const value = written(`blocks.${layer}.attn.hook_result`, head, cfg.n_heads);
      found.push({ name: `L${layer}H${head}`, site: { kind: "z", layer, head }, value });
    }
    bias += share(weights[`blocks.${layer}.attn.b_O`].data);
    if (cfg.d_mlp) {
      const own = share(weights[`blocks.${layer}.mlp.b_out`].data);
      const value = written(`blocks.${layer}.hook_mlp_out`) - own;
      bias += own;
      found.push({ name: `L${layer} MLP`, site: { kind: "mlp_out", layer }, value });
    }
  }
  if (!model.clamps?.some(strays)) return [...found, { name: "biases", site: null, value: bias }];
  const rest = margin(pass, pos, answer, foil) - found.reduce((total, { value }) => total + value, 0);
  return [...found, { name: HELD, site: null, value: rest }];
}

/** What each neuron of a layer, or each feature of its dictionary, adds directly to the same difference. */
export function unitShares(
  /** @type {Model} */ model,
  /** @type {Pass} */ pass,
  /** @type {number} */ pos,
  /** @type {number} */ answer,
  /** @type {number} */ foil,
  /** @type {number} */ layer,
  /** @type {import("./units.js").UnitKind} */ kind = "post",
) {
  const { d_model: d } = model.cfg;
  const along = direction(model, answer, foil);
  const scale = pass.cache.get("ln_final.hook_scale")?.data[pos] ?? 1;
  const { n, values } = unitWeights(model, layer, kind);
  const active = row(/** @type {Tensor} */ (pass.cache.get(hookName({ kind, layer }))), pos);
  return Array.from({ length: n }, (_, unit) => {
    let total = 0;
    for (let i = 0; i < d && active[unit]; i++) total += values[unit * d + i] * along[i];
    return (active[unit] * total) / scale;
  });
}

/** What the error of a layer's dictionary adds directly to it. */
export function errorShare(
  /** @type {Model} */ model,
  /** @type {Pass} */ pass,
  /** @type {number} */ pos,
  /** @type {number} */ answer,
  /** @type {number} */ foil,
  /** @type {number} */ layer,
) {
  const along = direction(model, answer, foil);
  const error = row(/** @type {Tensor} */ (pass.cache.get(hookName({ kind: "error", layer }))), pos);
  return error.reduce((total, value, i) => total + value * along[i], 0) / (pass.cache.get("ln_final.hook_scale")?.data[pos] ?? 1);
}

// ---- Exact predictors of a task: computed where it has a script for the page, else looked up for the page's sequences.

/**
 * @param {any} run
 * @param {import("./weights.js").Packed[]} tensors
 * @param {?ExplorerGuest} guest
 */
export function predictors(run, tensors, guest) {
  const same = (/** @type {number[]} */ a, /** @type {number[]} */ b) => a.length === b.length && a.every((x, i) => x === b[i]);
  /** @type {?import("./weights.js").Tensor} */
  let table = null;
  const exact = () => (table ??= unpack(tensors[run.exact]));
  const shipped = run.examples.flatMap((/** @type {any} */ one) => [one, ...Object.values(one.pairs)]);
  return {
    names: guest ? Object.keys(guest.references) : run.references,

    /** Why the task has no such sequence; null if nothing speaks against it. */
    complaint(/** @type {number[]} */ tokens) {
      const foreign = tokens.find((token) => !run.alphabet.includes(token));
      if (foreign !== undefined) return `${run.symbols[foreign]} occurs in none of the ${run.task ? "task's " : ""}${run.reference.length} sequences here`;
      return guest?.complaint(tokens) ?? null;
    },

    /** @returns {?ExactRows} null: not known for this sequence. */
    rows(/** @type {string} */ name, /** @type {number[]} */ tokens) {
      if (guest) return guest.complaint(tokens) ? null : guest.references[name](tokens);
      const found = shipped.find((/** @type {any} */ one) => same(one.tokens, tokens));
      const numbers = found?.rows[name];
      if (!numbers) return null;
      return new Map(found.places.map((/** @type {number} */ pos, /** @type {number} */ i) => [pos, row(exact(), numbers[i])]));
    },
  };
}
