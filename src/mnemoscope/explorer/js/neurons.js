/**
 * A neuron as a key and a value: what excites it and what it writes, by the weights, and where it is most active.
 *
 * As `ms.analyses.neuron_keys`, `neuron_values` and `top_inputs`: gains and centring of the normalisations are taken
 * in, their division is left out, and so is what earlier layers write.
 *
 * @typedef {import("./weights.js").Model} Model
 * @typedef {{token: Float32Array, pos: Float32Array, heads: {token: Float32Array, pos: Float32Array}[]}} Keys
 */
import { el, refill, short } from "./dom.js";
import { forward, inPieces } from "./forward.js";
import { ofHead, project, read } from "./layers.js";
import { called, onSwitch, positionName, theCalled, typed } from "./naming.js";
import { ranked, row } from "./reading.js";

const NAMED = 3;
const MOST_HEADS = 3;

/** What the pre-activation of a neuron gains from every token and position, here and where each head attends. */
export function neuronKeys(/** @type {Model} */ model, /** @type {number} */ layer, /** @type {number} */ neuron) {
  const { d_model: d, d_head: dHead, d_mlp: n, n_heads: nHeads } = model.cfg;
  const key = model.weights[`blocks.${layer}.mlp.W_in`].data.filter((_, i) => i % n === neuron);
  const excited = (/** @type {Float32Array} */ rows) => project(read(model, rows, `blocks.${layer}.ln2`), key, null, d, 1);
  const moved = (/** @type {Float32Array} */ rows, /** @type {number} */ head) => {
    const values = project(read(model, rows, `blocks.${layer}.ln1`), ofHead(model, layer, head, "W_V"), null, d, dHead);
    return excited(project(values, ofHead(model, layer, head, "W_O"), null, dHead, d));
  };
  const [tokens, positions] = [model.weights["embed.W_E"].data, model.weights["pos_embed.W_pos"].data];
  const heads = Array.from({ length: nHeads }, (_, head) => ({ token: moved(tokens, head), pos: moved(positions, head) }));
  return /** @type {Keys} */ ({ token: excited(tokens), pos: excited(positions), heads });
}

/** What a neuron adds to every logit for an activation of one, less the mean over logits. */
export function neuronValue(/** @type {Model} */ model, /** @type {number} */ layer, /** @type {number} */ neuron) {
  const { d_model: d } = model.cfg;
  const unembed = model.weights["unembed.W_U"];
  const written = model.weights[`blocks.${layer}.mlp.W_out`].data.slice(neuron * d, (neuron + 1) * d);
  const value = project(read(model, written, "ln_final"), unembed.data, null, d, unembed.shape[1]);
  const mean = value.reduce((sum, logit) => sum + logit, 0) / value.length;
  return value.map((logit) => logit - mean);
}

/**
 * The sequences on which a neuron is most active at a position, the most active first; a piece is one sequence.
 *
 * @param {Model} model
 * @param {number[][]} sequences
 * @param {{layer: number, neuron: number, pos: number}} where
 * @returns {Generator<void, {row: number, activation: number}[]>} Only those that excite it.
 */
export function* topInputs(model, sequences, { layer, neuron, pos }) {
  const found = [];
  for (const [i, tokens] of sequences.entries()) {
    const post = forward(model, tokens).cache.get(`blocks.${layer}.mlp.hook_post`);
    found.push({ row: i, activation: row(/** @type {any} */ (post), pos)[neuron] });
    yield;
  }
  return found.filter(({ activation }) => activation > 0).sort((a, b) => b.activation - a.activation);
}

/**
 * What is known of the chosen neuron, with a switch.
 *
 * @param {any} app
 * @param {(site: import("./edits.js").Site) => void} flip   Switch a neuron off, or on again.
 */
export function neuronCard(app, flip) {
  const head = el("p", {});
  const table = el("table", {});
  const active = el("p", { class: "note" });
  const note = el("p", { class: "note" });
  const node = el("div", { class: "neuron" }, head, el("div", { class: "scroll" }, table), active, note);
  let turn = 0;
  let asked = "";

  /** The ends of a list of numbers by name: the largest, and the smallest. */
  const ends = (/** @type {Float32Array} */ values, /** @type {(i: number) => string} */ name) => {
    const order = ranked(values);
    const list = (/** @type {number[]} */ chosen) => chosen.map((i) => `${name(i)}\u00a0${short(values[i], 2, true)}`).join(", ");
    return [list(order.slice(0, NAMED)), list(order.slice(-NAMED).reverse())];
  };
  const spread = (/** @type {Float32Array} */ values) => Math.max(...values) - Math.min(...values);

  const rows = (/** @type {any} */ run, /** @type {Model} */ model, /** @type {number} */ layer, /** @type {number} */ neuron) => {
    const keys = neuronKeys(model, layer, neuron);
    const token = (/** @type {number} */ i) => run.symbols[i];
    const pos = (/** @type {number} */ i) => positionName(run, i);
    const reach = (/** @type {Keys["heads"][0]} */ own) => Math.max(spread(own.token), spread(own.pos));
    const heads = keys.heads.map((own, i) => ({ own, name: theCalled(run, `L${layer}H${i}`) })).sort((a, b) => reach(b.own) - reach(a.own));
    return [
      ["the token here", ...ends(keys.token, token)],
      ["the position", ...ends(keys.pos, pos)],
      ...heads.slice(0, MOST_HEADS).flatMap(({ own, name }) => [
        [`a token, through ${name}`, ...ends(own.token, token)],
        [`a position, through ${name}`, ...ends(own.pos, pos)],
      ]),
      ["it raises, and lowers, the logit of", ...ends(neuronValue(model, layer, neuron), (i) => run.outputs[i])],
    ];
  };

  return {
    node,
    update(/** @type {import("./state.js").View} */ { run, state, model, shown }, /** @type {number[]} */ shares) {
      const [layer, neuron] = state.neuron.split(".").map(Number);
      const site = { kind: "post", layer, neuron };
      const activation = row(/** @type {any} */ (shown.cache.get(`blocks.${layer}.mlp.hook_post`)), state.pos)[neuron];
      const off = state.edits.find((edit) => edit.site?.kind === "post" && edit.site.layer === layer && edit.site.neuron === neuron);
      const words = `neuron ${neuron} of ${called(run, `L${layer} MLP`)}`;
      refill(head, [state.run, state.neuron, activation, shares[neuron], off], () => [
        el("button", { class: "switch", role: "switch", "aria-checked": String(!off), "aria-label": `${words} works`, onclick: () => flip(site) }, off ? onSwitch(off) : "on"),
        el("span", {}, ` ${words}: active at ${short(activation)}, adds ${short(shares[neuron], 2, true)}`),
      ]);
      const key = JSON.stringify([state.run, state.checkpoint, state.neuron, state.pos]);
      if (key === asked) return;
      asked = key;
      turn += 1;
      const column = (/** @type {string} */ name) => el("th", { scope: "col" }, name);
      table.replaceChildren(
        el("tr", {}, el("td"), column("excite it most"), column("excite it least")),
        ...rows(run, model, layer, neuron).map(([name, most, least]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, most), el("td", {}, least))),
      );
      note.textContent = `By the weights, along the direct path: without the division of the normalisations${layer ? ", and without what earlier layers add" : ""}.`;
      active.textContent = "";
      const { pos } = state;
      const own = turn;
      const work = (function* () {
        const top = (yield* topInputs(model, run.reference, { layer, neuron, pos })).slice(0, NAMED);
        const named = top.map(({ row: i, activation: value }) => [el("b", { class: "tok" }, typed(run, run.reference[i].slice(0, run.cfg.causal ? pos + 1 : run.lengths[i]))), ` (${short(value)}) `]).flat();
        const where = `of the page's ${run.reference.length} sequences, after ${positionName(run, pos)}`;
        active.replaceChildren(...(top.length ? [`Most active, ${where}, on `, ...named] : [`Active on none ${where}.`]));
      })();
      inPieces(work, () => own === turn);
    },
  };
}
