/** Reading: the logit lens, and what the weights of the chosen head say between tokens. */
import { ovCircuit, qkCircuit } from "./circuits.js";
import { el, refill, short } from "./dom.js";
import { drawMatrix } from "./heat.js";
import { normalise, project, softmax } from "./layers.js";
import { called } from "./naming.js";
import { ranked, row } from "./reading.js";

const MOST_NAMED = 20;

/** The logits that the last layer would read from the residual stream at a depth. */
export function lens(/** @type {import("./weights.js").Model} */ model, /** @type {Float32Array} */ stream) {
  const { cfg, weights } = model;
  const norm = { kind: cfg.normalization, eps: cfg.eps, w: weights["ln_final.w"]?.data, b: weights["ln_final.b"]?.data };
  const { rows } = normalise(stream, cfg.d_model, norm);
  return project(rows, weights["unembed.W_U"].data, weights["unembed.b_U"].data, cfg.d_model, weights["unembed.W_U"].shape[1]);
}

/** A matrix between tokens, with what is under the pointer in words; arrows move too. */
function tokenMatrix(/** @type {string} */ title, /** @type {(run: any, row: number, column: number, value: number) => string} */ tell) {
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "matrix" }));
  const cross = el("i", { class: "cross" });
  const said = el("p", { class: "note", role: "status" });
  const frame = el("div", { class: "frame", tabindex: 0, role: "img", "aria-label": `${title}; arrow keys move` }, canvas, cross);
  const [above, left] = ["above", "left"].map((side) => el("div", { class: `labels ${side}`, "aria-hidden": "true" }));
  const node = el("div", {}, el("h3", {}, title), el("div", { class: "grid" }, el("span"), above, left, frame), said);
  /** @type {any} */
  let now = null;
  let at = [1, 1];
  const point = (/** @type {number} */ i, /** @type {number} */ j) => {
    const { run, values, n } = now;
    const nRows = values.length / n;
    at = [Math.min(nRows - 1, Math.max(0, i)), Math.min(n - 1, Math.max(0, j))];
    said.textContent = tell(run, at[0], at[1], values[at[0] * n + at[1]]);
    const [width, height] = [100 / n, 100 / nRows];
    Object.assign(cross.style, { left: `${at[1] * width}%`, top: `${at[0] * height}%`, width: `${width}%`, height: `${height}%` });
  };
  frame.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const nRows = now.values.length / now.n;
    point(Math.floor(((event.clientY - box.top) / box.height) * nRows), Math.floor(((event.clientX - box.left) / box.width) * now.n));
  });
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    point(at[0] + step[0], at[1] + step[1]);
  });
  return {
    node,
    draw(/** @type {any} */ run, /** @type {Float32Array} */ values, /** @type {number} */ n) {
      now = { run, values, n };
      drawMatrix(canvas, values, n, values.reduce((most, value) => Math.max(most, Math.abs(value)), 0));
      for (const [labels, size] of /** @type {[HTMLElement, number][]} */ ([[above, n], [left, values.length / n]])) {
        const names = size <= MOST_NAMED ? run.symbols.slice(0, size) : [];
        refill(labels, names, () => names.map((/** @type {string} */ name) => el("span", {}, name)));
      }
      point(at[0], at[1]);
    },
  };
}

export function insidePanel(/** @type {any} */ app) {
  const table = el("table", {});
  const note = el("p", { class: "note" });
  const qk = tokenMatrix("QK: scores between tokens", (run, i, j, value) => `A query ${run.symbols[i]} gives a key ${run.symbols[j]} a score of ${short(value, 2, true)}.`);
  const ov = tokenMatrix("OV: from a token to logits", (run, i, j, value) => `Attending to ${run.symbols[i]} adds ${short(value, 2, true)} to the logit of ${run.symbols[j]}.`);
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
    update(/** @type {import("./view.js").View} */ view) {
      if (!node.open) return;
      const { run, state, model, shown, answer, foil } = view;
      const [one, two] = [run.symbols[answer], run.symbols[foil]];
      const depths = [...shown.cache.keys()].filter((name) => name === "blocks.0.hook_resid_pre" || /hook_resid_(mid|post)$/.test(name));
      table.replaceChildren(
        el("tr", {}, ...["after", "says", "probability", `logit of ${one} minus ${two}`].map((name) => el("th", { scope: "col" }, name))),
        ...depths.map((name) => {
          const logits = lens(model, row(/** @type {any} */ (shown.cache.get(name)), state.pos));
          const [top] = ranked(logits, 1);
          const [, layer, stage] = /** @type {string[]} */ (/(\d+)\.hook_resid_(\w+)/.exec(name));
          const said = { pre: "the embeddings", mid: `L${layer} attention`, post: model.cfg.d_mlp ? `L${layer} MLP` : `L${layer} attention` }[stage] ?? name;
          const ahead = logits[answer] - logits[foil];
          return el("tr", {}, el("th", { scope: "row" }, said), el("td", {}, run.symbols[top]), el("td", {}, short(softmax(logits)[top])), el("td", {}, short(ahead, 2, true)));
        }),
      );
      const [layer, head] = state.head.split(".").map(Number);
      note.textContent = `Of ${called(run, `L${layer}H${head}`)}, along the direct path from token embeddings: without positions, biases and the division of the normalisations${layer ? ", and without what earlier layers add" : ""}. Choose the head under Attention.`;
      qk.draw(run, qkCircuit(model, layer, head), run.cfg.d_vocab);
      ov.draw(run, ovCircuit(model, layer, head), model.weights["unembed.W_U"].shape[1]);
    },
  };
}
