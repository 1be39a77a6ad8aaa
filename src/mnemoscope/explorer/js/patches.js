/**
 * What each activation carries: the change of the logit difference when it alone comes from the other sequence.
 *
 * The cells are filled in pieces of a few milliseconds, so that the page stays at hand; a new state starts anew.
 */
import { MANY, chooser, el, short } from "./dom.js";
import { forward, inPieces } from "./forward.js";
import { READS, called, component, partsIn, positionName } from "./naming.js";
import { margin } from "./reading.js";

const ROWS = /** @type {[string, string][]} */ ([
  ["writes", "the residual stream and what parts write to it"],
  ["reads", "queries, keys and values of heads"],
]);

export function patchesPanel(/** @type {any} */ app) {
  let rows = "writes";
  const choose = chooser("of", ROWS, rows, (chosen) => ((rows = chosen), app.repaint()));
  const table = /** @type {HTMLTableElement} */ (el("table", { class: "patches" }));
  const note = el("p", { class: "note" });
  const node = el("section", { class: "panel wide" }, el("h2", {}, "What carries the difference"), el("div", { class: "actions" }, choose), note, el("div", { class: "scroll" }, table));
  let turn = 0;
  let drawn = "";

  /** Activations that stand in the rows: what parts write, or what heads compute from what they read. */
  const sites = (/** @type {any} */ run) => {
    const parts = partsIn(run.cfg).map((site) => ({ name: called(run, component(site)), site }));
    if (rows === "reads") {
      const heads = parts.filter(({ site }) => site.head !== undefined);
      return heads.flatMap(({ name, site }) => Object.entries(READS).map(([kind, word]) => ({ name: `${name}: ${word}`, site: { ...site, kind } })));
    }
    return Array.from({ length: run.cfg.n_layers }, (_, layer) => [
      { name: `residual stream, L${layer}`, site: { kind: "resid_pre", layer } },
      ...parts.filter(({ site }) => site.layer === layer),
    ]).flat();
  };

  /** @returns {Generator<void, void>} */
  const fill = function* (/** @type {import("./state.js").View} */ view, /** @type {any[]} */ cells, /** @type {number} */ difference) {
    const { run, state, model, clean, answer, rival: foil, sources } = view;
    const before = margin(clean, state.pos, answer, foil);
    for (const { button, site, name } of cells) {
      const pass = forward(model, state.tokens, [{ kind: "patch", site }], sources);
      const share = (margin(pass, state.pos, answer, foil) - before) / difference;
      const label = `${name} at ${positionName(run, site.pos)}: ${short(share, 2, true)} of the difference`;
      button.style.background = `rgba(var(--${share < 0 ? "less" : "more"}), ${Math.min(1, Math.abs(share)).toFixed(2)})`;
      button.style.color = Math.abs(share) > 0.6 ? "var(--paper)" : "";
      button.textContent = short(share);
      button.title = label;
      button.setAttribute("aria-label", `${label}; patch it`);
      yield;
    }
  };

  return {
    node,
    build() {
      drawn = "";
    },
    update(/** @type {import("./state.js").View} */ view) {
      const { run, state, clean, other, differ, answer, rival: foil } = view;
      turn += 1;
      const difference = margin(other, state.pos, answer, foil) - margin(clean, state.pos, answer, foil);
      node.hidden = !differ;
      if (!differ) return;
      const first = run.cfg.causal ? state.tokens.findIndex((token, pos) => token !== state.other[pos]) : 0;
      const last = run.cfg.causal ? state.pos : state.tokens.length - 1;
      const [one, two] = [run.outputs[answer], run.outputs[foil]];
      note.textContent =
        `On the other sequence the logit of ${one} minus that of ${two}, after ${positionName(run, state.pos)}, is ${short(difference, 2, true)} away. ` +
        "Each number is the share of this way that one activation from there goes, everything else as it is: 1 is all of it. Click to keep a patch.";
      if (first < 0 || first > last || Math.abs(difference) < 1e-3) {
        note.textContent = `What differs between the two sequences does not reach ${positionName(run, state.pos)}.`;
        table.replaceChildren();
        drawn = "";
        return;
      }
      const positions = Array.from({ length: last - first + 1 }, (_, i) => first + i);
      const key = JSON.stringify([app.state.run, positions, rows]);
      if (key !== drawn) {
        drawn = key;
        table.classList.toggle("many", positions.length > MANY);
        table.replaceChildren(
          el("tr", {}, el("td"), ...positions.map(() => el("th", { scope: "col" }))),
          ...sites(run).map(({ name, site }) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, name),
              ...positions.map((pos) => el("td", {}, el("button", { onclick: () => app.toggle({ kind: "patch", site: { ...site, pos } }) }))),
            ),
          ),
        );
      }
      positions.forEach((pos, i) => {
        const [a, b] = [run.symbols[state.tokens[pos]], run.symbols[state.other[pos]]];
        table.rows[0].cells[i + 1].textContent = a === b ? a : `${a}→${b}`;
      });
      const cells = sites(run).flatMap(({ name, site }, line) =>
        positions.map((pos, i) => {
          const button = /** @type {HTMLElement} */ (table.rows[line + 1].cells[i + 1].firstElementChild);
          const own = (/** @type {any} */ e) => e.kind === "patch" && e.site?.pos === pos && e.site.kind === site.kind && e.site.layer === site.layer && e.site.head === site.head;
          button.setAttribute("aria-pressed", String(state.edits.some(own)));
          return { button, name, site: { ...site, pos } };
        }),
      );
      const own = turn;
      inPieces(fill(view, cells, difference), () => own === turn);
    },
  };
}
