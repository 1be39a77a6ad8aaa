/**
 * Interventions as values: where, and what is done there.
 *
 * @typedef {Object} Site            as `ms.Site`, in TransformerLens's words
 * @property {string} kind           embed, resid_pre, q, k, v, z, result, scores, pattern, pre, post, mlp_out, feature, error, ...
 * @property {number} [layer]
 * @property {number} [head]         none: all
 * @property {number} [neuron]       a neuron, or a feature; none: all
 * @property {number} [pos]          none: all; of scores and pattern the query
 * @property {number} [key]          of scores and pattern; none: all
 * @typedef {Object} Edge            what one part adds to the input of a later one, as `ms.Edge`
 * @property {Site} writer
 * @property {Site|"logits"} reader
 * @property {string} [through]      q, k or v of a head; none: all three
 * @property {number} [pos]
 * @typedef {Object} Edit
 * @property {"zero"|"mean"|"resample"|"patch"|"scale"|"value"|"knockout"|"pattern"} kind
 *     mean: over the reference set; resample: from the sequence of it that was drawn; patch: from the other sequence;
 *     value: `values`, the same in every place of the site; pattern: `rows`
 * @property {Site} [site]
 * @property {Edge} [edge]
 * @property {Class} [within]        of mean: the class of sequences that it is taken over; none: all
 * @property {number} [factor]       of scale
 * @property {number[]} [values]     of value: as many as the site is wide
 * @property {Object<number, number[]>} [rows]   of pattern: query to the weight of every key
 * @typedef {import("./weights.js").Tensor} Tensor
 * @typedef {[string, number]} Class   a latent of the task and its value
 * @typedef {(hook: string, edit: {within?: Class}) => Tensor} Source   the activations that an edit takes
 * @typedef {{mean?: Source, resample?: Source, patch?: Source}} Sources
 */

const FROM_ELSEWHERE = ["mean", "resample", "patch"];
const ATTENTION = ["scores", "pattern"];

/** Name of the hook point of a site. */
export function hookName(/** @type {Site} */ site) {
  const { kind, layer } = site;
  if (layer === undefined) return `hook_${kind}`;
  if (kind === "pre" || kind === "post") return `blocks.${layer}.mlp.hook_${kind}`;
  if (["q", "k", "v", "z", "result", "pattern"].includes(kind)) return `blocks.${layer}.attn.hook_${kind}`;
  return kind === "scores" ? `blocks.${layer}.attn.hook_attn_scores` : `blocks.${layer}.hook_${kind}`;
}

const from = (/** @type {number|undefined} */ one, /** @type {number} */ n) =>
  one === undefined ? [...Array(n).keys()] : [one];

/**
 * The ranges of an activation that a site covers.
 *
 * @param {Site} site
 * @param {number[]} shape   (pos, width), (pos, head, width), or (head, query, key)
 * @returns {[number, number][]} Start and end of each.
 */
export function ranges(site, shape) {
  const [a, b, c] = shape;
  const range = (/** @type {number} */ start, /** @type {number} */ n) => /** @type {[number, number]} */ ([start, start + n]);
  if (ATTENTION.includes(site.kind)) {
    return from(site.head, a).flatMap((head) =>
      from(site.pos, b).map((query) => {
        const row = (head * b + query) * c;
        return site.key === undefined ? range(row, c) : range(row + site.key, 1);
      }),
    );
  }
  if (shape.length === 3) {
    return from(site.pos, a).flatMap((pos) =>
      from(site.head, b).map((head) => range((pos * b + head) * c, c)),
    );
  }
  return from(site.pos, a).map((pos) => (site.neuron === undefined ? range(pos * b, b) : range(pos * b + site.neuron, 1)));
}

/**
 * A copy of an activation with an edit made.
 *
 * @param {Tensor} old
 * @param {Edit} edit
 * @param {Site} site       Where in the activation.
 * @param {Sources} sources
 * @returns {Tensor}
 */
export function edited(old, edit, site, sources) {
  const data = old.data.slice();
  if (edit.kind === "pattern") {
    for (const [query, row] of Object.entries(edit.rows ?? {})) {
      for (const [start] of ranges({ ...site, pos: Number(query), key: undefined }, old.shape)) data.set(row, start);
    }
    return { shape: old.shape, data };
  }
  const source = sources[/** @type {"mean"} */ (edit.kind)];
  if (!source && FROM_ELSEWHERE.includes(edit.kind)) throw new Error(`nothing to take a ${edit.kind} from`);
  const other = source?.(hookName(site), edit).data;
  for (const [start, end] of ranges(site, old.shape)) {
    for (let i = start; i < end; i++) {
      if (other) data[i] = other[i];
      else if (edit.kind === "zero") data[i] = 0;
      else if (edit.kind === "knockout") data[i] = -Infinity;
      else if (edit.kind === "scale") data[i] *= edit.factor ?? 1;
      else data[i] = (edit.values ?? [])[i - start];
    }
  }
  return { shape: old.shape, data };
}

/** Whether an edge leads to this input. */
export function reaches(/** @type {Edge} */ edge, /** @type {Site|"logits"} */ reader, /** @type {string} */ through) {
  const end = edge.reader;
  if (end === "logits" || reader === "logits") return end === reader;
  return (
    end.kind === reader.kind &&
    end.layer === reader.layer &&
    end.head === reader.head &&
    (edge.through === undefined || edge.through === through)
  );
}
