/**
 * What a reader has chosen, and the same as the fragment of an address.
 *
 * @typedef {import("./edits.js").Edit} Edit
 * @typedef {Object} State
 * @property {number} run
 * @property {number} checkpoint
 * @property {number[]} tokens      the sequence
 * @property {number[]} other       the other sequence, of the same length: where patches come from
 * @property {number} pos           where predictions are read; where null is set, the page chooses
 * @property {?number} answer       the token whose logit is explained; null: the model's answer
 * @property {?number} foil         the token it is compared with; null: what the changed model, or the model on the other sequence, says instead
 * @property {string} head          of the attention shown, `0.1` for L0H1
 * @property {string} neuron        the one that is looked into, `0.17` for neuron 17 of layer 0; empty: none
 * @property {"mean"|"class"|"zero"|"resample"|"patch"} removal   how parts are switched off
 * @property {string} within        the class of sequences of `class`, a latent and its value, as in `source_slot:2`
 * @property {number} draw          of the sequence that `resample` takes activations from
 * @property {string} reference     exact predictor shown beside the model
 * @property {Edit[]} edits
 */
import { classOf } from "./means.js";

const NUMBERS = ["run", "checkpoint", "pos", "answer", "foil", "draw"];
const SEQUENCES = ["tokens", "other"];
const WORDS = ["head", "neuron", "removal", "within", "reference"];
const REMOVAL_KINDS = ["mean", "class", "zero", "resample", "patch"];
const KINDS = ["zero", "mean", "resample", "patch", "scale", "pattern"];

/** The fragment of an address that opens the page in this state. */
export function toFragment(/** @type {State} */ state) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value === null || value === "" || (name === "edits" && !state.edits.length)) continue;
    words.set(name, SEQUENCES.includes(name) ? /** @type {number[]} */ (value).join(".") : name === "edits" ? JSON.stringify(value) : String(value));
  }
  return words.toString();
}

/**
 * What a fragment says; null if it is none of ours.
 *
 * @returns {?Partial<State>}
 */
export function fromFragment(/** @type {string} */ fragment) {
  /** @type {Object<string, any>} */
  const found = {};
  try {
    for (const [name, text] of new URLSearchParams(fragment.replace(/^#/, ""))) {
      if (NUMBERS.includes(name)) found[name] = whole(text);
      else if (SEQUENCES.includes(name)) found[name] = text.split(".").map(whole);
      else if (name === "edits") found[name] = JSON.parse(text);
      else if (WORDS.includes(name)) found[name] = text;
      else return null;
    }
  } catch {
    return null;
  }
  return found;
}

function whole(/** @type {string} */ text) {
  if (!/^\d+$/.test(text)) throw new SyntaxError(`${text} is no number`);
  return Number(text);
}

/** The state with everything in range for a run: what an address or another run left over is set right. */
export function settled(/** @type {State} */ state, /** @type {any} */ run) {
  const inside = (/** @type {any} */ value, /** @type {number} */ n) => (Number.isInteger(value) && value >= 0 && value < n ? value : null);
  const { n_ctx: longest, d_vocab: nTokens, d_vocab_out: nAnswers, n_layers: nLayers, n_heads: nHeads } = run.cfg;
  const fits = (/** @type {any} */ tokens) =>
    Array.isArray(tokens) && tokens.length > 0 && tokens.length <= longest && tokens.every((t) => inside(t, nTokens) !== null);
  const tokens = fits(state.tokens) ? state.tokens : run.examples[0].tokens;
  const other = fits(state.other) && state.other.length === tokens.length ? state.other : tokens;
  const places = run.scored.filter((/** @type {number} */ pos) => pos < tokens.length);
  const pos = places.includes(state.pos) ? state.pos : (places.at(-1) ?? tokens.length - 1);
  const [layer, head] = String(state.head).split(".").map(Number);
  const within = chosenClass(run, state.within, tokens);
  const known = inside(layer, nLayers) !== null && inside(head, nHeads) !== null;
  const [mlp, neuron] = state.neuron ? String(state.neuron).split(".").map(Number) : [];
  const isNeuron = inside(mlp, nLayers) !== null && inside(neuron, run.cfg.d_mlp) !== null;
  return {
    ...state,
    tokens,
    other,
    pos,
    checkpoint: inside(state.checkpoint, run.steps.length) ?? run.steps.length - 1,
    answer: inside(state.answer, nAnswers),
    foil: inside(state.foil, nAnswers),
    head: known ? `${layer}.${head}` : "0.0",
    neuron: isNeuron ? `${mlp}.${neuron}` : "",
    removal: REMOVAL_KINDS.includes(state.removal) && (state.removal !== "class" || within) ? state.removal : "mean",
    within: within ? within.join(":") : "",
    draw: inside(state.draw, Infinity) ?? 0,
    edits: (Array.isArray(state.edits) ? state.edits : []).filter(
      (edit) => exists(edit, run.cfg, tokens.length) && (!edit.within || (edit.kind === "mean" && isClass(run, edit.within))),
    ),
  };
}

const isClass = (/** @type {any} */ run, /** @type {any} */ within) =>
  Object.hasOwn(run.classes, within?.[0]) && run.classes[within[0]].includes(within[1]);

/**
 * The class that a text names; else that of the sequence by the first latent, else the first class.
 *
 * @returns {?import("./edits.js").Class} null: there are no classes.
 */
export function chosenClass(/** @type {any} */ run, /** @type {string} */ text, /** @type {number[]} */ tokens) {
  const [latent, value] = String(text).split(":");
  /** @type {import("./edits.js").Class} */
  const named = [latent, Number(value)];
  if (isClass(run, named)) return named;
  const [first] = Object.keys(run.classes);
  return first === undefined ? null : [first, classOf(run, tokens, first) ?? run.classes[first][0]];
}

/** Whether a model and a sequence have what an edit is about. */
function exists(/** @type {Edit} */ edit, /** @type {any} */ cfg, /** @type {number} */ n) {
  if (!KINDS.includes(edit?.kind) || !(edit.site?.kind || (edit.edge?.writer?.kind && edit.edge.reader))) return false;
  const sizes = { layer: cfg.n_layers, head: cfg.n_heads, neuron: cfg.d_mlp, pos: n, key: n };
  const ends = [edit.site, edit.edge?.writer, edit.edge?.reader, edit.edge && { pos: edit.edge.pos }];
  const rows = Object.entries(edit.rows ?? {}).every(([query, row]) => Number(query) < n && row.length === n);
  return rows && ends.every((end) => Object.entries(sizes).every(([axis, size]) => !(/** @type {any} */ (end)?.[axis] >= size)));
}
