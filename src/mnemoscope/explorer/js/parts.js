/**
 * The model as a picture that data flows through: every part that writes to the residual stream, what it adds directly
 * to the difference of logits, and a switch.
 */
import { MANY, chooser, el, refill, short } from "./dom.js";
import { hookName } from "./edits.js";
import { drawSmall } from "./matrix.js";
import { classOf, drawnRow } from "./means.js";
import { called, component, embeddingsIn, onSwitch, partsIn, positionName, typed } from "./naming.js";
import { neuronCard } from "./neurons.js";
import { attribution, errorShare, headPattern, margin, row, unitShares } from "./reading.js";
import { unitsOf } from "./units.js";

const REMOVALS = /** @type {[string, string][]} */ ([
  ["mean", "its mean over sequences"],
  ["class", "its mean over a class of sequences"],
  ["zero", "zero"],
  ["resample", "its value on a random sequence"],
  ["patch", "its value on the other sequence"],
]);
const MOST_NEURONS = 128;

/**
 * The edit that switches off what stands at a place, as chosen.
 *
 * @returns {import("./edits.js").Edit}
 */
function removed(/** @type {import("./state.js").State} */ state, /** @type {{site?: any, edge?: any}} */ place) {
  if (state.removal !== "class") return { kind: state.removal, ...place };
  const [latent, value] = state.within.split(":");
  return { kind: "mean", within: [latent, Number(value)], ...place };
}

/** Whether units are shown with a part: those of a layer with its last one. */
function hasUnits(/** @type {any} */ run, /** @type {import("./edits.js").Site} */ site) {
  const last = run.cfg.d_mlp ? site.kind === "mlp_out" : site.head === run.cfg.n_heads - 1;
  return last && unitsOf(run, "", Number(site.layer)).n > 0;
}

/** What is folded under them. */
function summary(/** @type {any} */ run, /** @type {number} */ layer) {
  const own = run.dictionaries.find((/** @type {any} */ one) => one.layer === layer);
  const told = [...(run.cfg.d_mlp ? [`its ${run.cfg.d_mlp} neurons`] : []), ...(own ? [`${own.n} features of ${own.name}`] : [])];
  return told.join(", and ");
}

/** Whether a dictionary writes this into the stream, or to where no part has it. */
function ofStream(/** @type {any} */ run, /** @type {import("./edits.js").Site} */ site) {
  const own = run.dictionaries.find((/** @type {any} */ one) => one.layer === site.layer);
  return ["feature", "error"].includes(site.kind) && own?.writes !== "mlp_out";
}

export function partsPanel(/** @type {any} */ app) {
  const list = el("ol", { class: "stream" });
  const note = el("p", { class: "note" });
  const how = el("div", { class: "actions" });
  const edits = el("ul", { class: "edits" });
  const node = el("section", { class: "panel" }, el("h2", {}, "The model, part by part"), note, list, how, edits);
  const card = neuronCard(app, (site) => removed(app.state, { site }));
  /** @type {{line: HTMLElement, canvas: ?HTMLCanvasElement, neurons: ?HTMLElement}[]} */
  let lines = [];

  const build = () => {
    const { run } = app;
    const embeddings = embeddingsIn(run.cfg).map((site) => ({ name: component(site), site: null }));
    const parts = partsIn(run.cfg).map((site) => ({ name: component(site), site }));
    lines = [...embeddings, ...parts, { name: "biases", site: null }].map(({ name, site }) => {
      const canvas = site?.head === undefined ? null : /** @type {HTMLCanvasElement} */ (el("canvas", { "aria-hidden": "true" }));
      const title = canvas
        ? el("button", { class: "part", title: "show its attention", onclick: () => app.set({ head: `${site?.layer}.${site?.head}` }) }, canvas, called(run, name))
        : el("span", { class: "part" }, called(run, name));
      const flip = () => app.toggle(removed(app.state, { site }));
      const onoff = site ? el("button", { class: "switch", role: "switch", "aria-label": `${called(run, name)} works`, onclick: flip }, "on") : el("span");
      const neurons = site && hasUnits(run, site) ? el("div", { class: "neurons" }) : null;
      const more = neurons ? [el("details", { ontoggle: () => app.repaint() }, el("summary", {}, summary(run, Number(site?.layer))), el("div", { class: "actions" }), neurons)] : [];
      const share = el("span", { class: "share" }, el("i"), el("b"));
      return { canvas, neurons, line: el("li", { class: site ? "works" : "" }, title, share, onoff, ...more) };
    });
    const total = el("li", { class: "total" }, el("span", { class: "part" }), el("span", { class: "share" }, el("i"), el("b")), el("span"));
    list.replaceChildren(...lines.map(({ line }) => line), total);
  };

  /** Of a layer with a dictionary: which units are shown; of features how many are active, and what they leave out. */
  const aboutUnits = (/** @type {import("./state.js").View} */ view, /** @type {HTMLElement} */ place, /** @type {number} */ layer, /** @type {number} */ nActive) => {
    const { run, state, model, shown, answer, foil } = view;
    const own = run.dictionaries.find((/** @type {any} */ one) => one.layer === layer);
    if (!own) return;
    const { kind, n } = unitsOf(run, state.units, layer);
    const site = { kind: "error", layer };
    const off = state.edits.find((edit) => edit.site?.kind === "error" && edit.site.layer === layer);
    const left = short(errorShare(model, shown, state.pos, answer, foil, layer), 2, true);
    const chosen = state.neuron.split(".")[0] === String(layer) ? state.neuron.split(".")[1] : "";
    const look = (/** @type {any} */ event) => app.set({ neuron: event.target.value === "" ? "" : `${layer}.${event.target.value}` });
    const flip = () => app.toggle(removed(app.state, { site }));
    refill(place, [state.run, kind, nActive, left, off, chosen], () => [
      ...(run.cfg.d_mlp ? [chooser("look at", [["", "neurons"], ["features", `features of ${own.name}`]], state.units, (units) => app.set({ units, neuron: "" }))] : []),
      ...(kind === "post" ? [] : [
        el("label", { class: "choose" }, "number ", el("input", { type: "text", inputmode: "numeric", size: 4, value: chosen, onchange: look })),
        el("span", { class: "together" }, `${nActive} of ${n} are active`),
      ]),
      ...(kind === "post" || !own.error ? [] : [
        el("span", { class: "together" }, `its error adds ${left} `, el("button", { class: "switch", role: "switch", "aria-checked": String(!off), "aria-label": `error of ${own.name} works`, onclick: flip }, off ? onSwitch(off) : "on")),
      ]),
    ]);
  };

  /** Squares, as dark as what each neuron or active feature adds; a click looks into one. */
  const drawNeurons = (/** @type {any} */ view, /** @type {HTMLElement} */ place, /** @type {number} */ layer) => {
    const { run, state, model, shown, answer, foil } = view;
    const list = /** @type {HTMLDetailsElement} */ (place.parentElement);
    const looked = state.neuron.split(".")[0] === String(layer);
    if (looked && !place.children.length) list.open = true; // an address names the neuron
    if (!list.open) return;
    const { kind, word } = unitsOf(run, state.units, layer);
    const shares = unitShares(model, shown, state.pos, answer, foil, layer, kind);
    const active = row(/** @type {any} */ (shown.cache.get(hookName({ kind, layer }))), state.pos);
    aboutUnits(view, /** @type {HTMLElement} */ (place.previousElementSibling), layer, active.filter((value) => value > 0).length);
    const switched = new Set(state.edits.filter((/** @type {any} */ e) => e.site?.kind === kind && e.site.layer === layer).map((/** @type {any} */ e) => e.site.neuron));
    const first = (/** @type {number} */ unit) => (switched.has(unit) || state.neuron === `${layer}.${unit}` ? Infinity : Math.abs(shares[unit]));
    const order = [...shares.keys()].filter((unit) => kind === "post" || active[unit] !== 0 || first(unit) === Infinity);
    const kept = order.length <= MOST_NEURONS ? order : order.sort((a, b) => first(b) - first(a) || a - b).slice(0, MOST_NEURONS);
    const most = Math.max(...shares.map(Math.abs), 1e-9);
    const focus = [...place.children].indexOf(/** @type {Element} */ (document.activeElement));
    place.replaceChildren(
      ...kept.map((neuron) => {
        const off = switched.has(neuron);
        const label = `${word} ${neuron}: ${short(shares[neuron], 2, true)}${off ? ", off" : ""}`;
        const colour = `rgba(var(--${shares[neuron] < 0 ? "less" : "more"}), ${(Math.abs(shares[neuron]) / most).toFixed(2)})`;
        const own = `${layer}.${neuron}`;
        const onclick = () => app.set({ neuron: state.neuron === own ? "" : own });
        return el("button", { title: label, "aria-label": label, "aria-pressed": String(state.neuron === own), style: `background:${colour}`, onclick }, off ? "×" : "");
      }),
    );
    if (focus >= 0) /** @type {HTMLElement} */ (place.children[focus])?.focus();
    if (!looked) return;
    if (card.node.previousElementSibling !== place) place.after(card.node);
    card.update(view, shares);
  };

  /** Which class means are taken over. */
  const classChoosers = (/** @type {any} */ run, /** @type {import("./state.js").State} */ state) => {
    const [latent, value] = state.within.split(":");
    const own = classOf(run, state.tokens, latent);
    const values = /** @type {number[]} */ ([...new Set(run.classes[latent])]).sort((a, b) => a - b);
    const latents = /** @type {[string, string][]} */ (Object.keys(run.classes).map((name) => [name, name.replaceAll("_", " ")]));
    const first = (/** @type {string} */ name) => classOf(run, state.tokens, name) ?? run.classes[name][0];
    const told = (/** @type {number} */ one) => `${one}${one === own ? ", as here" : ""}`;
    return [
      chooser("of those whose", latents, latent, (name) => app.set({ within: `${name}:${first(name)}` })),
      chooser("is", values.map((one) => [String(one), told(one)]), value, (one) => app.set({ within: `${latent}:${one}` })),
    ];
  };

  /** Which sequence was drawn, and another draw. */
  const drawn = (/** @type {any} */ run, /** @type {import("./state.js").State} */ state) => {
    const row = drawnRow(run, state.draw, state.tokens);
    const text = typed(run, run.reference[row].slice(0, state.tokens.length));
    return [
      el("span", { class: "drawn" }, "the random sequence is ", el("b", { class: "tok" }, text)),
      el("button", { onclick: () => app.set({ draw: app.state.draw + 1 }) }, "draw another"),
    ];
  };

  return {
    node,
    build,
    update(/** @type {import("./state.js").View} */ view) {
      const { run, state, model, shown, answer, foil } = view;
      const shares = attribution(model, shown, state.pos, answer, foil);
      const total = margin(shown, state.pos, answer, foil);
      // what is written into the stream itself, or cut before the logits, is in no part
      const strayed = state.edits.some(({ site, edge }) => site?.kind.startsWith("resid") || (site && ofStream(run, site)) || edge?.reader === "logits");
      const rest = shares[shares.length - 1];
      if (strayed) rest.value = total - shares.slice(0, -1).reduce((sum, { value }) => sum + value, 0);
      const most = Math.max(...shares.map(({ value }) => Math.abs(value)), Math.abs(total), 1e-9);
      const draw = (/** @type {Element} */ line, /** @type {number} */ value) => {
        const bar = /** @type {HTMLElement} */ (line.querySelector(".share i"));
        bar.className = value < 0 ? "less" : "more";
        bar.style.width = `${(50 * Math.abs(value)) / most}%`;
        /** @type {Element} */ (line.querySelector(".share b")).textContent = short(value, 2, true);
      };
      if (!state.neuron) card.node.remove();
      lines.forEach(({ line, canvas, neurons }, i) => {
        const { site, value } = shares[i];
        draw(line, value);
        const own = (/** @type {any} */ edit) => edit.site && site && edit.site.pos === undefined && edit.site.neuron === undefined
          && edit.site.kind === site.kind && edit.site.layer === site.layer && edit.site.head === site.head;
        const off = state.edits.find(own);
        line.classList.toggle("off", Boolean(off));
        line.classList.toggle("chosen", canvas !== null && state.head === `${site?.layer}.${site?.head}`);
        const button = line.querySelector(".switch");
        if (button) {
          button.setAttribute("aria-checked", String(!off));
          button.textContent = off ? onSwitch(off) : "on";
        }
        if (canvas && site) {
          drawSmall(canvas, headPattern(shown, Number(site.layer), Number(site.head)), !run.cfg.linear);
        }
        if (neurons) drawNeurons(view, neurons, Number(site?.layer));
      });
      /** @type {Element} */ (lines[lines.length - 1].line.querySelector(".part")).textContent = strayed ? `${rest.name}, and changes of the stream` : rest.name;
      const last = /** @type {Element} */ (list.lastElementChild);
      draw(last, total);
      const [one, other] = [run.outputs[answer], run.outputs[foil]];
      /** @type {Element} */ (last.querySelector(".part")).textContent = `logit of ${one} minus logit of ${other}`;
      note.textContent =
        `What each part adds directly to the logit of ${one} minus that of ${other}, after ${positionName(run, state.pos)}` +
        `${state.edits.length ? ", with the changes" : ""}. The bars add up to the last one.`;
      const ways = REMOVALS.filter(([way]) => way !== "class" || state.within);
      const draws = state.removal === "resample" || state.edits.some(({ kind }) => kind === "resample");
      refill(how, [state.run, state.removal, state.within, draws, draws && [state.draw, state.tokens]], () => [
        chooser("a part that is switched off gives", ways, state.removal, (removal) => app.set({ removal })),
        ...(state.removal === "class" ? classChoosers(run, state) : []),
        ...(draws ? drawn(run, state) : []),
      ]);
      refill(edits, [state.run, state.edits], () => [
        ...state.edits.map((edit, i) => {
          const drop = () => app.set({ edits: app.state.edits.filter((/** @type {any} */ _, /** @type {number} */ at) => at !== i) });
          return el("li", {}, app.inWords(edit), el("button", { "aria-label": `undo: ${app.inWords(edit)}`, onclick: drop }, "×"));
        }),
        ...(state.edits.length > 1 ? [el("li", {}, el("button", { onclick: () => app.set({ edits: [] }) }, "undo all"))] : []),
      ]);
    },
  };
}

/** Every writer and every later reader as a table of buttons: cut what one adds to the input of the other. */
export function edgesPanel(/** @type {any} */ app) {
  const table = el("table", { class: "edges" });
  const node = el(
    "details",
    { class: "panel wide" },
    el("summary", {}, "Connections: cut what one part reads of another"),
    el("p", { class: "note" }, "Rows write to the residual stream, columns read it. A cut replaces what is read by this reader alone."),
    el("div", { class: "scroll" }, table),
  );
  const depth = (/** @type {any} */ site) => (site === "logits" ? Infinity : site.layer === undefined ? -1 : 2 * site.layer + (site.kind === "mlp_out" ? 1 : 0));
  return {
    node,
    build() {
      const { cfg, dictionaries } = app.run;
      node.hidden = dictionaries.length > 0;
      const parts = partsIn(cfg);
      const writers = [...embeddingsIn(cfg), ...parts];
      /** @type {any[]} */
      const readers = [...parts, "logits"];
      table.classList.toggle("many", readers.length > MANY);
      table.replaceChildren(
        el("tr", {}, el("td"), ...readers.map((reader) => el("th", { scope: "col" }, component(reader)))),
        ...writers.map((writer) =>
          el(
            "tr",
            {},
            el("th", { scope: "row" }, called(app.run, component(writer))),
            ...readers.map((reader) => {
              if (depth(writer) >= depth(reader)) return el("td");
              const edge = { writer, reader };
              const label = `${component(writer)} to ${component(reader)}`;
              const onclick = () => app.toggle(removed(app.state, { edge }));
              return el("td", {}, el("button", { class: "switch", role: "switch", "aria-label": label, title: label, "data-edge": JSON.stringify(edge), onclick }, "on"));
            }),
          ),
        ),
      );
    },
    update(/** @type {import("./state.js").View} */ view) {
      const cut = new Map(view.state.edits.filter((edit) => edit.edge).map((edit) => [JSON.stringify(edit.edge), edit]));
      for (const button of /** @type {NodeListOf<HTMLElement>} */ (table.querySelectorAll("button"))) {
        const edit = cut.get(/** @type {string} */ (button.dataset.edge));
        button.setAttribute("aria-checked", String(!edit));
        button.textContent = edit ? onSwitch(edit) : "on";
      }
    },
  };
}
