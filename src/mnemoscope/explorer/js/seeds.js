/**
 * All runs of one configuration on the sequence, as they are: what each says, and what its parts add and cost.
 *
 * Heads stand by their roles, since their numbers mean nothing from one seed to another. Changes are of the chosen run
 * alone and are left out here. The table is filled in pieces, so that the page stays at hand.
 *
 * @typedef {import("./edits.js").Site} Site
 * @typedef {{name: string, site: Site, adds: number, costs: number}} Part
 */
import { el, short } from "./dom.js";
import { forward, inPieces } from "./forward.js";
import { drawSmall } from "./matrix.js";
import { meansInPieces } from "./means.js";
import { component, partsIn, positionName } from "./naming.js";
import { attribution, headPattern, probabilities, ranked } from "./reading.js";

/** A part by its role, without its number: what the same part of another seed is called too. */
const roleOf = (/** @type {any} */ run, /** @type {string} */ name) => (run.roles[name] ?? name).replaceAll("_", " ");

/** The checkpoint of a run after so many steps; the last where it has none. */
function checkpointAt(/** @type {any} */ run, /** @type {number} */ step) {
  const found = run.steps.indexOf(step);
  return found < 0 ? run.steps.length - 1 : found;
}

/**
 * What a model says after a position, what every part adds directly to the difference of two logits, and by how much
 * the probability of the answer falls with the part's mean in its place.
 *
 * @param {any} run
 * @param {import("./weights.js").Model} model
 * @param {number[]} tokens
 * @param {{pos: number, answer: number, foil: number}} asked
 * @returns {Generator<void, {pass: import("./forward.js").Pass, said: Float32Array, parts: Part[]}>}
 */
export function* measured(run, model, tokens, { pos, answer, foil }) {
  const pass = forward(model, tokens);
  const said = probabilities(pass, pos);
  const mean = yield* meansInPieces(run, model, tokens.length);
  /** @type {Part[]} */
  const parts = [];
  for (const { name, site, value } of attribution(model, pass, pos, answer, foil)) {
    if (!site || site.layer === undefined) continue;
    const without = forward(model, tokens, [{ kind: "mean", site }], { mean });
    parts.push({ name, site, adds: value, costs: said[answer] - probabilities(without, pos)[answer] });
    yield;
  }
  return { pass, said, parts };
}

export function seedsPanel(/** @type {any} */ app) {
  const title = el("summary");
  const note = el("p", { class: "note" });
  const table = /** @type {HTMLTableElement} */ (el("table", { class: "seeds" }));
  const node = /** @type {HTMLDetailsElement} */ (
    el("details", { class: "panel wide", open: true, ontoggle: () => app.repaint() }, title, note, el("div", { class: "scroll" }, table))
  );
  let turn = 0;
  let asked = "";
  let built = "";
  /** @type {{run: any, number: number, line: HTMLElement, says: HTMLElement, cells: Map<string, HTMLElement>}[]} */
  let lines = [];

  /** The roles of all runs in their order, and what parts without a role are called. */
  const columns = (/** @type {any[]} */ runs) => {
    const parts = runs.flatMap((run) => {
      const names = [...Object.keys(run.roles), ...partsIn(run.cfg).map(component)];
      return names.map((name) => roleOf(run, name));
    });
    return [...new Set(parts)];
  };

  const build = () => {
    const label = app.run.label;
    if (label === built) return;
    built = label;
    const runs = app.runs.map((/** @type {any} */ run, /** @type {number} */ number) => ({ run, number })).filter((/** @type {any} */ one) => one.run.label === label);
    node.hidden = runs.length < 2;
    lines = [];
    asked = "";
    if (node.hidden) return;
    title.textContent = `All ${runs.length} seeds of ${label} on this sequence`;
    const roles = columns(runs.map((/** @type {any} */ one) => one.run));
    lines = runs.map((/** @type {{run: any, number: number}} */ { run, number }) => {
      const says = el("td", { class: "says" });
      const cells = new Map(roles.map((role) => [role, el("td")]));
      const button = el("button", { onclick: () => app.set({ run: number }), title: "show this run" }, `seed ${run.seed}`);
      return { run, number, says, cells, line: el("tr", {}, el("th", { scope: "row" }, button), says, ...cells.values()) };
    });
    const head = (/** @type {string} */ name) => el("th", { scope: "col" }, name);
    table.replaceChildren(el("tr", {}, head("model"), head("says"), ...roles.map(head)), ...lines.map(({ line }) => line));
  };

  /** What one run has in its line: the answer, and of every part a small picture with two numbers. */
  const fill = (/** @type {typeof lines[0]} */ { run, number, says, cells }, /** @type {any} */ found, /** @type {number} */ most) => {
    const [top] = ranked(found.said, 1);
    says.replaceChildren(el("b", { class: "tok" }, run.outputs[top]), ` ${short(found.said[top])}`);
    for (const { name, site, adds, costs } of found.parts) {
      const role = roleOf(run, name);
      const numbers = [["adds", short(adds, 2, true)], ["costs", short(costs)]].map(([word, value]) => el("span", {}, el("small", {}, `${word} `), value));
      const told = `seed ${run.seed}, ${role} (${name}): adds ${short(adds, 2, true)}, costs ${short(costs)}`;
      const cell = /** @type {HTMLElement} */ (cells.get(role));
      const picture = el("canvas", { "aria-hidden": "true" });
      const choice = site.head === undefined ? { run: number } : { run: number, head: `${site.layer}.${site.head}` };
      const onclick = () => app.set(choice);
      const inside = [el("span", {}, ...(role === name ? [] : [el("small", {}, name)]), ...numbers)];
      cell.replaceChildren(el("button", { "aria-label": `${told}; show it`, title: told, onclick }, ...(site.head === undefined ? [] : [picture]), ...inside));
      cell.style.background = `rgba(var(--${adds < 0 ? "less" : "more"}), ${((0.3 * Math.abs(adds)) / most).toFixed(3)})`;
      if (site.head === undefined) continue;
      drawSmall(/** @type {HTMLCanvasElement} */ (picture), headPattern(found.pass, site.layer, site.head), !run.cfg.linear);
    }
  };

  return {
    node,
    build,
    update(/** @type {import("./state.js").View} */ { run, state, answer, foil }) {
      if (node.hidden) return;
      for (const { number, line } of lines) {
        line.classList.toggle("chosen", number === state.run);
        line.querySelector("button")?.setAttribute("aria-current", String(number === state.run));
      }
      const key = JSON.stringify([state.tokens, state.pos, answer, foil, run.steps[state.checkpoint], state.clamps, matchMedia("(prefers-color-scheme: dark)").matches]);
      if (!node.open || key === asked) return;
      asked = key;
      turn += 1;
      const [one, two] = [run.outputs[answer], run.outputs[foil]];
      note.textContent =
        `After ${positionName(run, state.pos)}, the models ${state.clamps ? "with their clamps" : "as they are"}, at step ${run.steps[state.checkpoint]} where a run has it, else at its last. ` +
        `A part adds this much directly to the logit of ${one} minus that of ${two}; it costs the probability of ${one} that is lost with its mean over sequences in its place. ` +
        "Heads stand by their roles. Choose a run to see it.";
      const { tokens, pos } = state;
      const work = (function* () {
        for (const line of lines) {
          const model = app.open(line.run, checkpointAt(line.run, run.steps[state.checkpoint]));
          const found = yield* measured(line.run, model, tokens, { pos, answer, foil });
          fill(line, found, Math.max(...found.parts.map(({ adds }) => Math.abs(adds)), 1e-9));
        }
      })();
      const own = turn;
      inPieces(work, () => own === turn);
    },
  };
}
