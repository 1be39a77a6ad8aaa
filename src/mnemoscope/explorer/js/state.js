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
 * @property {string} units         `features`: those of dictionaries are shown where layers have one; empty: neurons
 * @property {string} neuron        the one that is looked into, `0.17` for neuron 17 of layer 0, or feature 17; empty: none
 * @property {"mean"|"class"|"zero"|"resample"|"patch"} removal   how parts are switched off
 * @property {string} within        the class of sequences of `class`, a latent and its value, as in `source_slot:2`
 * @property {number} draw          of the sequence that `resample` takes activations from
 * @property {string} reference     exact predictor shown beside the model
 * @property {""|"with"} clamps     `with`: the model with the clamps of its training; empty: as it is
 * @property {Edit[]} edits
 */
import { forward } from "./forward.js";
import { classOf, drawnRow, sourcesOf } from "./means.js";
import { probabilities, ranked } from "./reading.js";
import { unitsOf } from "./units.js";

const NUMBERS = ["run", "checkpoint", "pos", "answer", "foil", "draw"];
const SEQUENCES = ["tokens", "other"];
const WORDS = ["head", "units", "neuron", "removal", "within", "reference", "clamps"];
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

/**
 * Positions of a sequence at which predictions are read: those that the task scores, where the page knows the sequence;
 * else all that it scores in any. Elsewhere models were never taught what to say.
 *
 * @returns {number[]}
 */
export function scoredIn(/** @type {any} */ run, /** @type {number[]} */ tokens) {
  const text = tokens.join();
  const known = run.examples
    .flatMap((/** @type {any} */ one) => [one, ...Object.values(one.pairs)])
    .find((/** @type {any} */ one) => one.tokens.join() === text);
  const places = known?.scored.length ? known.scored : run.scored;
  return places.filter((/** @type {number} */ pos) => pos < tokens.length);
}

/** The state with everything in range for a run: what an address or another run left over is set right. */
export function settled(/** @type {State} */ state, /** @type {any} */ run) {
  const inside = (/** @type {any} */ value, /** @type {number} */ n) => (Number.isInteger(value) && value >= 0 && value < n ? value : null);
  const { n_ctx: longest, d_vocab: nTokens, d_vocab_out: nAnswers, n_layers: nLayers, n_heads: nHeads } = run.cfg;
  const fits = (/** @type {any} */ tokens) =>
    Array.isArray(tokens) && tokens.length > 0 && tokens.length <= longest && tokens.every((t) => inside(t, nTokens) !== null);
  const tokens = fits(state.tokens) ? state.tokens : run.examples[0].tokens;
  const other = fits(state.other) && state.other.length === tokens.length ? state.other : tokens;
  const places = scoredIn(run, tokens);
  const pos = places.includes(state.pos) ? state.pos : (places.at(-1) ?? tokens.length - 1);
  const [layer, head] = String(state.head).split(".").map(Number);
  const within = chosenClass(run, state.within, tokens);
  const known = inside(layer, nLayers) !== null && inside(head, nHeads) !== null;
  const units = state.units === "features" && run.dictionaries.length ? "features" : "";
  const [mlp, neuron] = state.neuron ? String(state.neuron).split(".").map(Number) : [];
  const isNeuron = inside(mlp, nLayers) !== null && inside(neuron, unitsOf(run, units, mlp).n) !== null;
  return {
    ...state,
    tokens,
    other,
    pos,
    checkpoint: inside(state.checkpoint, run.steps.length) ?? run.steps.length - 1,
    answer: inside(state.answer, nAnswers),
    foil: inside(state.foil, nAnswers),
    head: known ? `${layer}.${head}` : "0.0",
    units,
    neuron: isNeuron ? `${mlp}.${neuron}` : "",
    removal: REMOVAL_KINDS.includes(state.removal) && (state.removal !== "class" || within) ? state.removal : "mean",
    within: within ? within.join(":") : "",
    draw: inside(state.draw, Infinity) ?? 0,
    clamps: /** @type {""|"with"} */ (state.clamps === "with" && run.clamps && !run.clamps.refused ? "with" : ""),
    edits: (Array.isArray(state.edits) ? state.edits : []).filter(
      (edit) => exists(edit, run, tokens.length) && (!edit.within || (edit.kind === "mean" && isClass(run, edit.within))),
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
function exists(/** @type {Edit} */ edit, /** @type {any} */ { cfg, dictionaries }, /** @type {number} */ n) {
  if (!KINDS.includes(edit?.kind) || !(edit.site?.kind || (edit.edge?.writer?.kind && edit.edge.reader))) return false;
  if (edit.edge && dictionaries.length) return false; // features are parts of the graph then: `ms.patch_edges` patches them
  const ofDictionary = ["feature", "error"].includes(edit.site?.kind ?? "");
  const own = ofDictionary && dictionaries.find((/** @type {any} */ one) => one.layer === edit.site?.layer);
  if (ofDictionary && !own) return false;
  const sizes = { layer: cfg.n_layers, head: cfg.n_heads, neuron: own ? own.n : cfg.d_mlp, pos: n, key: n };
  const ends = [edit.site, edit.edge?.writer, edit.edge?.reader, edit.edge && { pos: edit.edge.pos }];
  const rows = Object.entries(edit.rows ?? {}).every(([query, row]) => Number(query) < n && row.length === n);
  return rows && ends.every((end) => Object.entries(sizes).every(([axis, size]) => !(/** @type {any} */ (end)?.[axis] >= size)));
}

// ---- the view

/**
 * All that is computed for one state: the passes over both sequences, and what is explained.
 *
 * @typedef {import("./forward.js").Pass} Pass
 * @typedef {Object} View
 * @property {any} run
 * @property {import("./state.js").State} state
 * @property {import("./weights.js").Model} model
 * @property {Pass} clean           the sequence, nothing changed
 * @property {Pass} other           the other sequence
 * @property {Pass} shown           the sequence with all edits in force
 * @property {boolean} differ       whether the two sequences do
 * @property {number} answer        whose logit is explained
 * @property {number} foil          against whose: what the model says with the edits, or on the other sequence
 * @property {number} rival         what it says on the other sequence, for patches from there
 * @property {?Map<number, ArrayLike<number>>} exact
 * @property {import("./edits.js").Sources} sources
 */

/** @type {WeakMap<import("./weights.js").Model, Map<string, Pass>>} */
const PASSES = new WeakMap();
const KEPT = 4;

/** The pass over a sequence with nothing changed; the last few are kept. */
function intact(/** @type {import("./weights.js").Model} */ model, /** @type {number[]} */ tokens) {
  const known = PASSES.get(model) ?? new Map();
  PASSES.set(model, known);
  const key = tokens.join();
  const pass = known.get(key) ?? forward(model, tokens);
  known.delete(key);
  known.set(key, pass);
  if (known.size > KEPT) known.delete(known.keys().next().value);
  return pass;
}

/**
 * The scored position at which the model gives the surest two different answers: one with the same token in both
 * sequences if there is any; where no answers differ the last.
 */
export function mostDifferent(/** @type {any} */ app) {
  const { run, state } = app;
  const model = app.open(run, state.checkpoint);
  const [one, other] = [intact(model, state.tokens), intact(model, state.other)];
  const places = scoredIn(run, state.tokens);
  const apart = places.map((/** @type {number} */ pos) => {
    const [p, q] = [probabilities(one, pos), probabilities(other, pos)];
    const [a, b] = [ranked(p, 1)[0], ranked(q, 1)[0]];
    return { pos, by: a === b ? 0 : p[a] * q[b] };
  });
  const alike = apart.filter((/** @type {any} */ { pos, by }) => by > 0 && state.tokens[pos] === state.other[pos]);
  return (alike.length ? alike : apart).reduce((/** @type {any} */ a, /** @type {any} */ b) => (b.by >= a.by ? b : a)).pos;
}

/** @returns {View} */
export function look(/** @type {any} */ app) {
  const { run, state } = app;
  const { tokens, other: otherTokens, pos, edits } = state;
  const model = app.open(run, state.checkpoint);
  const clean = intact(model, tokens);
  const differ = tokens.some((/** @type {number} */ token, /** @type {number} */ i) => token !== otherTokens[i]);
  const other = differ ? intact(model, otherTokens) : clean;
  const sources = sourcesOf(run, model, tokens.length, other.cache, drawnRow(run, state.draw, tokens));
  const shown = edits.length ? forward(model, tokens, edits, sources) : clean;
  const [first, second] = ranked(probabilities(clean, pos), 2);
  const answer = state.answer ?? first;
  const others = [shown, other].map((pass) => ranked(probabilities(pass, pos), 1)[0]);
  const unlike = [...others, first, second].find((token) => token !== answer);
  const foil = state.foil ?? /** @type {number} */ (unlike);
  const rival = state.foil ?? (others[1] === answer ? foil : others[1]);
  const exact = app.predictors.rows(state.reference, tokens);
  return { run, state, model, clean, other, shown, differ, answer, foil, rival, exact, sources };
}
