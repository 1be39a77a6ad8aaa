/** What the model says at every scored position, and at the chosen one token by token, beside an exact predictor. */
import { chooser, el, refill, short } from "./dom.js";
import { positionName } from "./naming.js";
import { probabilities, ranked, row } from "./reading.js";

const FEW = 10;
const UNLIKELY = 0.005;

export function answersPanel(/** @type {any} */ app) {
  const strip = el("div", { class: "strip", role: "group", "aria-label": "positions to read at" });
  const detail = el("div", { class: "scroll" });
  const asked = el("div", { class: "actions" });
  const node = el("section", { class: "panel" }, el("h2", {}, "What the model says"), strip, asked, detail);

  /** @type {{pos: number, button: HTMLElement, of: Node, bars: HTMLElement, says: HTMLElement}[]} */
  let places = [];

  /** One button a position, with bars: one per answer where there are few, else one, of the likeliest token. */
  const lay = (/** @type {any} */ run, /** @type {number} */ n) => {
    const nBars = run.answers.length <= FEW ? run.answers.length : 1;
    places = run.scored
      .filter((/** @type {number} */ pos) => pos < n)
      .map((/** @type {number} */ pos) => {
        const of = document.createTextNode("");
        const bars = el("span", { class: "bars" }, ...Array.from({ length: nBars }, () => el("span", {}, el("i"), el("u"))));
        const says = el("b");
        const onclick = () => app.set({ pos, answer: null, foil: null });
        return { pos, of, bars, says, button: el("button", { class: "answer", onclick }, el("small", {}, of), bars, says) };
      });
    strip.replaceChildren(...places.map(({ button }) => button));
  };

  const drawPlace = (/** @type {import("./view.js").View} */ view, /** @type {typeof places[0]} */ { pos, button, of, bars, says }) => {
    const { run, state, clean, shown, exact } = view;
    const said = probabilities(shown, pos);
    const due = exact?.get(pos);
    const [top] = ranked(said, 1);
    const [before] = shown === clean ? [top] : ranked(row(clean.logits, pos), 1);
    const tokens = run.answers.length <= FEW ? run.answers : [top];
    [...bars.children].forEach((bar, i) => {
      const [own, exactly] = /** @type {any} */ (bar.children);
      own.style.height = `${(100 * said[tokens[i]]).toFixed(1)}%`;
      exactly.hidden = !due || Number.isNaN(due[tokens[i]]);
      if (!exactly.hidden) exactly.style.bottom = `${(100 * /** @type {any} */ (due)[tokens[i]]).toFixed(1)}%`;
    });
    of.nodeValue = `${run.symbols[state.tokens[pos]]} →`;
    says.textContent = run.symbols[top];
    button.className = `answer${pos === state.pos ? " chosen" : ""}${before === top ? "" : " changed"}`;
    button.setAttribute("aria-pressed", String(pos === state.pos));
    button.title = `after ${positionName(run, pos)}, ${run.symbols[state.tokens[pos]]}: ${run.symbols[top]}, probability ${short(said[top])}`;
  };

  return {
    node,
    build() {
      places = [];
    },
    update(/** @type {import("./view.js").View} */ view) {
      const { run, state, clean, other, shown, differ, exact } = view;
      if (places.length !== run.scored.filter((/** @type {number} */ pos) => pos < state.tokens.length).length) lay(run, state.tokens.length);
      for (const place of places) drawPlace(view, place);
      requestAnimationFrame(() => {
        const chosen = /** @type {?HTMLElement} */ (strip.querySelector(".chosen"));
        if (chosen) strip.scrollLeft = chosen.offsetLeft - strip.offsetLeft - strip.clientWidth / 2;
      });

      const lists = [clean, shown, other].map((pass) => probabilities(pass, state.pos));
      const due = exact?.get(state.pos);
      const known = due && !Number.isNaN(due[0]);
      const most = Array.from(lists[0], (_, i) => Math.max(...lists.map((list) => list[i]), known ? due[i] : 0));
      const kept = new Set([...ranked(most, FEW - 2), view.answer, view.foil]);
      const likely = ranked(most).filter((token) => (run.answers.length <= FEW ? most[token] > UNLIKELY && !run.answers.includes(token) : kept.has(token)));
      const tokens = [...(run.answers.length <= FEW ? run.answers : []), ...likely];
      const columns = [
        { name: "model", kind: "model", values: lists[0] },
        ...(state.edits.length ? [{ name: "with changes", kind: "changed", values: lists[1] }] : []),
        ...(differ ? [{ name: "other sequence", kind: "other", values: lists[2] }] : []),
        ...(known ? [{ name: state.reference.replaceAll("_", " "), kind: "exact", values: due }] : []),
      ];
      const cell = (/** @type {string} */ kind, /** @type {number} */ p) =>
        el(
          "td",
          { class: "p" },
          el("span", { class: `meter ${kind}` }, el("i", { style: `width:${(100 * p).toFixed(1)}%` })),
          short(p),
        );
      detail.replaceChildren(
        el(
          "table",
          { class: "says" },
          el("caption", {}, `Probability of what follows ${positionName(run, state.pos)}, ${run.symbols[state.tokens[state.pos]]}, and its logit`),
          el("tr", {}, ...["token", ...columns.map((column) => column.name), "logit"].map((name) => el("th", { scope: "col" }, name))),
          ...tokens.map((/** @type {number} */ token) =>
            el(
              "tr",
              { class: token === view.answer ? "answer-row" : token === view.foil ? "foil-row" : "" },
              el("th", { scope: "row" }, run.symbols[token]),
              ...columns.map(({ kind, values }) => cell(kind, values[token])),
              el("td", {}, short(row(shown.logits, state.pos)[token])),
            ),
          ),
        ),
      );
      const options = (/** @type {string} */ own) =>
        /** @type {[string, string][]} */ ([["", own], ...tokens.map((/** @type {number} */ t) => [String(t), run.symbols[t]])]);
      const number = (/** @type {string} */ text) => (text === "" ? null : Number(text));
      const { names } = app.predictors;
      refill(asked, [state.run, tokens, view.answer, view.foil, state.answer, state.foil, state.reference], () => [
        chooser("explain", options(`its answer, ${run.symbols[view.answer]}`), String(state.answer ?? ""), (v) => app.set({ answer: number(v) })),
        chooser("against", options(run.symbols[view.foil]), String(state.foil ?? ""), (v) => app.set({ foil: number(v) })),
        ...(names.length
          ? [chooser("exact predictor", names.map((/** @type {string} */ name) => [name, name.replaceAll("_", " ")]), state.reference, (reference) => app.set({ reference }))]
          : []),
      ]);
    },
  };
}
