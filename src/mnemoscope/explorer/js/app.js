/** The page: state in, pictures out. Whatever changes the state goes through `set`. */
import { answersPanel, wordsPanel } from "./answers.js";
import { attentionPanel } from "./attention.js";
import { codePanel } from "./code.js";
import { chooser, el } from "./dom.js";
import { heldPanel } from "./held.js";
import { insidePanel } from "./inside.js";
import { inWords } from "./naming.js";
import { edgesPanel, partsPanel } from "./parts.js";
import { patchesPanel } from "./patches.js";
import { picture, save } from "./picture.js";
import { predictors } from "./reading.js";
import { seedsPanel } from "./seeds.js";
import { partner, sequencePanel } from "./sequence.js";
import { fromFragment, look, mostDifferent, settled, toFragment } from "./state.js";
import { timePanel } from "./time.js";
import { opener, payload } from "./weights.js";

/**
 * Build the page where its status line stands.
 *
 * @param {Object<string, (fields: any) => any>} guests   By task, what its script computes.
 * @param {Object<string, IdealScript<any>>} ideals       By task, its ideal parts.
 */
export function start(guests, ideals) {
  const status = /** @type {HTMLElement} */ (document.getElementById("explorer-status"));
  try {
    const data = payload(document.getElementById("explorer-data"));
    const app = explorer(data, guests, ideals, /** @type {HTMLElement} */ (document.getElementById("explorer")));
    status.remove();
    return app;
  } catch (error) {
    status.textContent = /** @type {Error} */ (error).message;
    throw error;
  }
}

/** Milliseconds without a change after which the address follows; browsers refuse to change it too often. */
const REST = 200;

/** A random example to begin with would be another at every visit; the first with a pair is always the same. */
function initial(/** @type {any} */ run) {
  const first = run.examples.find((/** @type {any} */ one) => Object.keys(one.pairs).length) ?? run.examples[0];
  return { tokens: first.tokens, other: partner(run, first), pos: null };
}

function explorer(/** @type {any} */ data, /** @type {Object<string, (fields: any) => any>} */ guests, /** @type {Object<string, IdealScript<any>>} */ ideals, /** @type {HTMLElement} */ root) {
  const open = opener(data.tensors, (run) => ideals[run.task.name](run.task.fields, run.cfg));
  const known = data.runs.map((/** @type {any} */ run) => predictors(run, data.tensors, guests[run.task?.name]?.(run.task.fields) ?? null));
  let written = 0;
  const framed = location.protocol === "about:"; // in a notebook there is no address to keep the state in

  const app = {
    /** @type {import("./state.js").State} */
    state: { run: 0, checkpoint: -1, tokens: [], other: [], pos: -1, answer: null, foil: null, head: "", units: "", neuron: "", removal: "mean", within: "", draw: 0, reference: "", clamps: "", edits: [] },
    get run() {
      return data.runs[app.state.run];
    },
    get predictors() {
      return known[app.state.run];
    },
    /** The model of a run at a checkpoint, with its clamps if these are chosen. */
    open: (/** @type {any} */ run, /** @type {number} */ checkpoint) => open(run, checkpoint, app.state.clamps === "with"),
    runs: data.runs,
    inWords: (/** @type {any} */ edit) => inWords(app.run, edit),
    fragment: () => toFragment(app.state),
    picture: () => picture(look(app)),

    /** Change the state and show it; with `pos` null the page chooses where to read. */
    set(/** @type {Partial<Omit<import("./state.js").State, "pos">> & {pos?: ?number}} */ change) {
      const before = app.state.run;
      const next = /** @type {import("./state.js").State} */ ({ ...app.state, ...change });
      const run = data.runs[next.run] ?? data.runs[0];
      next.run = data.runs.indexOf(run);
      if (next.run !== before && run.symbols.join() !== data.runs[before].symbols.join()) Object.assign(next, initial(run));
      const { names } = known[next.run];
      next.reference = [next.reference, run.best].find((name) => names.includes(name)) ?? names[0] ?? "";
      app.state = settled(next, run);
      if (change.pos === null) app.state.pos = mostDifferent(app);
      if (next.run !== before) build();
      app.repaint();
      clearTimeout(written);
      if (!framed) written = setTimeout(() => history.replaceState(null, "", `#${app.fragment()}`), REST);
    },

    /** Make an edit, or undo it where it is in force, whatever it puts there. */
    toggle(/** @type {any} */ edit) {
      const place = (/** @type {any} */ each) => JSON.stringify([each.site ?? null, each.edge ?? null]);
      const others = app.state.edits.filter((each) => place(each) !== place(edit));
      app.set({ edits: others.length < app.state.edits.length ? others : [...others, edit] });
    },

    repaint() {
      const view = look(app);
      for (const panel of panels) panel.update(view);
    },
  };

  const panels = [wordsPanel, timePanel, heldPanel, sequencePanel, answersPanel, partsPanel, attentionPanel, patchesPanel, seedsPanel, insidePanel, edgesPanel, codePanel].map((panel) => panel(app));
  const choice = el("div", { class: "actions wide" });
  const saved = el("button", { class: "tools", onclick: () => save(app.picture(), `${app.run.label}-seed-${app.run.seed ?? 0}.svg`.replace(/[^\w.-]+/g, "-"), "image/svg+xml") }, "save a picture (SVG)");
  saved.title = "attention, parts and predictions as they are shown now";
  const build = () => {
    choice.replaceChildren(saved);
    if (data.runs.length > 1) {
      const options = data.runs.map((/** @type {any} */ run, /** @type {number} */ i) => [String(i), run.seed === null ? run.label : `${run.label}, seed ${run.seed}`]);
      choice.prepend(chooser("model", options, String(app.state.run), (run) => app.set({ run: Number(run) })));
    }
    for (const panel of panels) panel.build();
  };
  root.append(choice, ...panels.map(({ node }) => node));

  const notice = el("p", { class: "warn wide", role: "alert", hidden: true }, "The address names no state of this page; this is its first one.");
  root.prepend(notice);
  const visit = () => {
    const asked = fromFragment(location.hash);
    notice.hidden = asked !== null;
    app.set({ ...initial(data.runs[asked?.run ?? 0] ?? data.runs[0]), edits: [], ...asked });
  };
  build();
  visit();
  addEventListener("hashchange", visit);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", app.repaint);
  return app;
}
