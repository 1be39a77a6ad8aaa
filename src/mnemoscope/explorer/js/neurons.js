/**
 * A neuron or a feature as a key and a value: what excites it and what it writes, by the weights; where it is most
 * active, and what the model says without it.
 *
 * As `ms.analyses.neuron_keys`, `neuron_values` and `top_inputs`: gains and centring of the normalisations are taken
 * in, their division is left out, and so is what earlier layers write.
 *
 * @typedef {import("./units.js").UnitKind} UnitKind
 * @typedef {import("./weights.js").Model} Model
 * @typedef {{token: Float32Array, pos: Float32Array, heads: {token: Float32Array, pos: Float32Array}[]}} Keys
 */
import { el, refill, short } from "./dom.js";
import { hookName } from "./edits.js";
import { forward, inPieces } from "./forward.js";
import { ofHead, project, read } from "./layers.js";
import { meansInPieces } from "./means.js";
import { called, onSwitch, positionName, theCalled, typed } from "./naming.js";
import { margin, probabilities, ranked, row } from "./reading.js";
import { unitsOf, unitWeights } from "./units.js";

const NAMED = 3;
const MOST_HEADS = 3;

/**
 * What the pre-activation of a neuron or feature gains from every token and position, here and where each head attends.
 *
 * @returns {?Keys} null: a dictionary that reads something else than the stream before the MLP.
 */
export function neuronKeys(/** @type {Model} */ model, /** @type {number} */ layer, /** @type {number} */ neuron, /** @type {UnitKind} */ kind = "post") {
  const { d_model: d, d_head: dHead, n_heads: nHeads } = model.cfg;
  const { n, keys, input } = unitWeights(model, layer, kind);
  if (!input) return null;
  const key = keys.filter((_, i) => i % n === neuron);
  const excited = (/** @type {Float32Array} */ rows) => project(input(rows), key, null, d, 1);
  const moved = (/** @type {Float32Array} */ rows, /** @type {number} */ head) => {
    const values = project(read(model, rows, `blocks.${layer}.ln1`), ofHead(model, layer, head, "W_V"), null, d, dHead);
    return excited(project(values, ofHead(model, layer, head, "W_O"), null, dHead, d));
  };
  const [tokens, positions] = ["embed.W_E", "pos_embed.W_pos"].map((name) => model.weights[name]?.data ?? new Float32Array());
  const heads = Array.from({ length: nHeads }, (_, head) => ({ token: moved(tokens, head), pos: moved(positions, head) }));
  return { token: excited(tokens), pos: excited(positions), heads };
}

/** What a neuron or feature adds to every logit for an activation of one, less the mean over logits. */
export function neuronValue(/** @type {Model} */ model, /** @type {number} */ layer, /** @type {number} */ neuron, /** @type {UnitKind} */ kind = "post") {
  const { d_model: d } = model.cfg;
  const unembed = model.weights["unembed.W_U"];
  const written = unitWeights(model, layer, kind).values.slice(neuron * d, (neuron + 1) * d);
  const value = project(read(model, written, "ln_final"), unembed.data, null, d, unembed.shape[1]);
  const mean = value.reduce((sum, logit) => sum + logit, 0) / value.length;
  return value.map((logit) => logit - mean);
}

/**
 * The sequences on which a neuron or feature is most active at a position, the most active first; a piece is one sequence.
 *
 * @param {Model} model
 * @param {number[][]} sequences
 * @param {{kind?: UnitKind, layer: number, neuron: number, pos: number}} where
 * @returns {Generator<void, {row: number, activation: number}[]>} Only those that excite it.
 */
export function* topInputs(model, sequences, { kind = "post", layer, neuron, pos }) {
  const found = [];
  for (const [i, tokens] of sequences.entries()) {
    const active = forward(model, tokens).cache.get(hookName({ kind, layer }));
    found.push({ row: i, activation: row(/** @type {any} */ (active), pos)[neuron] });
    yield;
  }
  return found.filter(({ activation }) => activation > 0).sort((a, b) => b.activation - a.activation);
}

/**
 * What is known of the chosen neuron or feature, with a switch.
 *
 * @param {any} app
 * @param {(site: import("./edits.js").Site) => import("./edits.js").Edit} without   The edit that switches it off.
 */
export function neuronCard(app, without) {
  const head = el("p", {});
  const needed = el("p", { class: "needed" });
  const table = el("table", {});
  const active = el("p", { class: "note" });
  const note = el("p", { class: "note" });
  const node = el("div", { class: "neuron" }, head, needed, el("div", { class: "scroll" }, table), active, note);
  let turn = 0;
  let asked = "";
  let tried = "";
  let attempt = 0;

  /** The ends of a list of numbers by name: the largest, and the smallest. */
  const ends = (/** @type {Float32Array} */ values, /** @type {(i: number) => string} */ name) => {
    const order = ranked(values);
    const list = (/** @type {number[]} */ chosen) => chosen.map((i) => `${name(i)}\u00a0${short(values[i], 2, true)}`).join(", ");
    return [list(order.slice(0, NAMED)), list(order.slice(-NAMED).reverse())];
  };
  const spread = (/** @type {Float32Array} */ values) => Math.max(...values) - Math.min(...values);

  const rows = (/** @type {any} */ run, /** @type {Model} */ model, /** @type {number} */ layer, /** @type {number} */ neuron, /** @type {UnitKind} */ kind) => {
    const keys = neuronKeys(model, layer, neuron, kind);
    const value = ["it raises, and lowers, the logit of", ...ends(neuronValue(model, layer, neuron, kind), (i) => run.outputs[i])];
    if (!keys) return [value];
    const token = (/** @type {number} */ i) => run.symbols[i];
    const pos = (/** @type {number} */ i) => positionName(run, i);
    const reach = (/** @type {Keys["heads"][0]} */ own) => Math.max(spread(own.token), spread(own.pos));
    const onPosition = (/** @type {string} */ label, /** @type {Float32Array} */ values) => (run.cfg.rotary ? [] : [[label, ...ends(values, pos)]]);
    const heads = keys.heads.map((own, i) => ({ own, name: theCalled(run, `L${layer}H${i}`) })).sort((a, b) => reach(b.own) - reach(a.own));
    return [
      ["the token here", ...ends(keys.token, token)],
      ...onPosition("the position", keys.pos),
      ...heads.slice(0, MOST_HEADS).flatMap(({ own, name }) => [
        [`a token, through ${name}`, ...ends(own.token, token)],
        ...onPosition(`a position, through ${name}`, own.pos),
      ]),
      value,
    ];
  };

  /** What the model says with it and without it, every other change in force. */
  const compare = function* (/** @type {import("./state.js").View} */ view, /** @type {import("./edits.js").Edit} */ edit) {
    const { run, state, model, shown, sources, answer, foil } = view;
    if (edit.kind === "mean") yield* meansInPieces(run, model, state.tokens.length, edit.within);
    const others = state.edits.filter((one) => one !== edit);
    const isOff = others.length < state.edits.length;
    const other = forward(model, state.tokens, isOff ? others : [...others, edit], sources);
    const [on, off] = isOff ? [other, shown] : [shown, other];
    const [before, after] = [on, off].map((pass) => probabilities(pass, state.pos));
    const gaps = [on, off].map((pass) => short(margin(pass, state.pos, answer, foil), 2, true));
    const [top] = ranked(after, 1);
    const token = (/** @type {number} */ number) => el("b", { class: "tok" }, run.outputs[number]);
    const how = /** @type {Object<string, string>} */ ({
      mean: edit.within ? "its mean over the class" : "its mean over sequences",
      resample: "its value on the random sequence",
      patch: "its value on the other sequence",
    })[edit.kind] ?? edit.kind;
    needed.replaceChildren(
      `Switched off (${how}): the probability of `, token(answer), ` goes from ${short(before[answer])} to ${short(after[answer])}, and its logit minus that of `,
      token(foil), ` from ${gaps[0]} to ${gaps[1]}. The model says `, token(top), ` (${short(after[top])}).`,
    );
  };

  return {
    node,
    update(/** @type {import("./state.js").View} */ view, /** @type {number[]} */ shares) {
      const { run, state, model, shown } = view;
      const [layer, neuron] = state.neuron.split(".").map(Number);
      const { kind, word, of } = unitsOf(run, state.units, layer);
      const site = { kind, layer, neuron };
      const activation = row(/** @type {any} */ (shown.cache.get(hookName(site))), state.pos)[neuron];
      const off = state.edits.find((edit) => edit.site?.kind === kind && edit.site.layer === layer && edit.site.neuron === neuron);
      const words = `${word} ${neuron} of ${of ? `${of}, L${layer}` : called(run, `L${layer} MLP`)}`;
      const flip = () => app.toggle(without(site));
      refill(head, [state.run, state.neuron, kind, activation, shares[neuron], off], () => [
        el("button", { class: "switch", role: "switch", "aria-checked": String(!off), "aria-label": `${words} works`, onclick: flip }, off ? onSwitch(off) : "on"),
        el("span", {}, ` ${words}: active at ${short(activation)}, adds ${short(shares[neuron], 2, true)}`),
      ]);
      const edit = off ?? without(site);
      const trial = JSON.stringify([state, edit, view.answer, view.foil]);
      if (trial !== tried) {
        tried = trial;
        attempt += 1;
        needed.textContent = "";
        const own = attempt;
        inPieces(compare(view, edit), () => own === attempt);
      }
      const key = JSON.stringify([state.run, state.checkpoint, state.clamps, state.units, state.neuron, state.pos]);
      if (key === asked) return;
      asked = key;
      turn += 1;
      const column = (/** @type {string} */ name) => el("th", { scope: "col" }, name);
      table.replaceChildren(
        el("tr", {}, el("td"), column("excite it most"), column("excite it least")),
        ...rows(run, model, layer, neuron, kind).map(([name, most, least]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, most), el("td", {}, least))),
      );
      const reads = run.dictionaries.find((/** @type {any} */ one) => one.layer === layer)?.reads;
      const unread = unitWeights(model, layer, kind).input ? "" : ` It reads ${reads}: which tokens and positions excite it does not follow from its weights.`;
      note.textContent = `By the weights, along the direct path: without the division of the normalisations${layer ? ", and without what earlier layers add" : ""}.${unread}`;
      active.textContent = "";
      const { pos } = state;
      const own = turn;
      const work = (function* () {
        const top = (yield* topInputs(model, run.reference, { kind, layer, neuron, pos })).slice(0, NAMED);
        const named = top.map(({ row: i, activation: value }) => [el("b", { class: "tok" }, typed(run, run.reference[i].slice(0, run.cfg.causal ? pos + 1 : run.lengths[i]))), ` (${short(value)}) `]).flat();
        const where = `of the page's ${run.reference.length} sequences, after ${positionName(run, pos)}`;
        active.replaceChildren(...(top.length ? [`Most active, ${where}, on `, ...named] : [`Active on none ${where}.`]));
      })();
      inPieces(work, () => own === turn);
    },
  };
}
