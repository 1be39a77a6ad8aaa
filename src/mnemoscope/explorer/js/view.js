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
import { forward } from "./forward.js";
import { drawnRow, sourcesOf } from "./means.js";
import { probabilities, ranked } from "./reading.js";

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
  const places = run.scored.filter((/** @type {number} */ pos) => pos < state.tokens.length);
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
