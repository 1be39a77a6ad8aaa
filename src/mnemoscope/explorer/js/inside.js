/** Reading: the logit lens, and what the weights of the chosen head say between tokens. */
import { el, short } from "./dom.js";
import { normalise, ovCircuit, project, qkCircuit, softmax } from "./layers.js";
import { pointedMatrix } from "./matrix.js";
import { called } from "./naming.js";
import { ranked, row } from "./reading.js";

/** The logits that the last layer would read from the residual stream at a depth. */
export function lens(/** @type {import("./weights.js").Model} */ model, /** @type {Float32Array} */ stream) {
  const { cfg, weights } = model;
  const norm = { kind: cfg.normalization, eps: cfg.eps, w: weights["ln_final.w"]?.data, b: weights["ln_final.b"]?.data };
  const { rows } = normalise(stream, cfg.d_model, norm);
  return project(rows, weights["unembed.W_U"].data, weights["unembed.b_U"].data, cfg.d_model, weights["unembed.W_U"].shape[1]);
}

/** A matrix between tokens, with what is under the pointer in words. */
function tokenMatrix(/** @type {string} */ title, /** @type {(run: any, row: number, column: number, value: number) => string} */ tell) {
  const said = el("p", { class: "note", role: "status" });
  /** @type {any} */
  let now = null;
  const matrix = pointedMatrix((i, j) => (said.textContent = tell(now.run, i, j, now.values[i * now.n + j])));
  let started = false;
  return {
    node: el("div", {}, el("h3", {}, title), matrix.node, said),
    draw(/** @type {any} */ run, /** @type {Float32Array} */ values, /** @type {number} */ n, columns = run.symbols) {
      now = { run, values, n };
      const most = values.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
      matrix.draw(values, n, most, { rows: run.symbols.slice(0, values.length / n), columns: columns.slice(0, n), label: `${title}; arrow keys move` });
      if (started) matrix.point(matrix.at.row, matrix.at.column);
      else matrix.point(1, 1);
      started = true;
    },
  };
}

export function insidePanel(/** @type {any} */ app) {
  const table = el("table", {});
  const note = el("p", { class: "note" });
  const qk = tokenMatrix("QK: scores between tokens", (run, i, j, value) => `A query ${run.symbols[i]} gives a key ${run.symbols[j]} a score of ${short(value, 2, true)}.`);
  const ov = tokenMatrix("OV: from a token to logits", (run, i, j, value) => `Attending to ${run.symbols[i]} adds ${short(value, 2, true)} to the logit of ${run.outputs[j]}.`);
  const node = /** @type {HTMLDetailsElement} */ (
    el(
      "details",
      { class: "panel wide", ontoggle: () => app.repaint() },
      el("summary", {}, "Reading the inside: the logit lens, and what a head's weights say"),
      el("h3", {}, "Logit lens"),
      el("p", { class: "note" }, "What the last layer would read from the residual stream at each depth. It shows how far the answer can be read, not that later layers read it so."),
      el("div", { class: "scroll" }, table),
      note,
      el("div", { class: "beside even" }, qk.node, ov.node),
    )
  );
  return {
    node,
    build() {},
    update(/** @type {import("./state.js").View} */ view) {
      if (!node.open) return;
      const { run, state, model, shown, answer, foil } = view;
      const [one, two] = [run.outputs[answer], run.outputs[foil]];
      const depths = [...shown.cache.keys()].filter((name) => name === "blocks.0.hook_resid_pre" || /hook_resid_(mid|post)$/.test(name));
      table.replaceChildren(
        el("tr", {}, ...["after", "says", "probability", `logit of ${one} minus ${two}`].map((name) => el("th", { scope: "col" }, name))),
        ...depths.map((name) => {
          const logits = lens(model, row(/** @type {any} */ (shown.cache.get(name)), state.pos));
          const [top] = ranked(logits, 1);
          const [, layer, stage] = /** @type {string[]} */ (/(\d+)\.hook_resid_(\w+)/.exec(name));
          const said = { pre: "the embeddings", mid: `L${layer} attention`, post: model.cfg.d_mlp ? `L${layer} MLP` : `L${layer} attention` }[stage] ?? name;
          const ahead = logits[answer] - logits[foil];
          return el("tr", {}, el("th", { scope: "row" }, said), el("td", {}, run.outputs[top]), el("td", {}, short(softmax(logits)[top])), el("td", {}, short(ahead, 2, true)));
        }),
      );
      const [layer, head] = state.head.split(".").map(Number);
      note.textContent = `Of ${called(run, `L${layer}H${head}`)}, along the direct path from token embeddings: without positions, biases and the division of the normalisations${layer ? ", and without what earlier layers add" : ""}. Choose the head under Attention.`;
      qk.draw(run, qkCircuit(model, layer, head), run.cfg.d_vocab);
      ov.draw(run, ovCircuit(model, layer, head), model.weights["unembed.W_U"].shape[1], run.outputs);
    },
  };
}
