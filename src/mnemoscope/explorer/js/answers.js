/** What the model says at every scored position, and at the chosen one token by token, beside an exact predictor. */
import { chooser, el, refill, short } from "./dom.js";
import { forward } from "./forward.js";
import { positionName, theCalled } from "./naming.js";
import { HELD, attribution, headPattern, margin, probabilities, ranked, row } from "./reading.js";
import { scoredIn } from "./state.js";

// ---- What the model says and why, in sentences: the answer, the part that adds most to it, where that looks, what it needs.

/** A token as it stands in a sentence. */
const token = (/** @type {any} */ run, /** @type {number} */ number) => el("b", { class: "tok" }, run.symbols[number]);

/** A token or class that the model predicts. */
const output = (/** @type {any} */ run, /** @type {number} */ number) => el("b", { class: "tok" }, run.outputs[number]);

/** Several of them. */
function outputs(/** @type {any} */ run, /** @type {number[]} */ numbers) {
  return numbers.flatMap((number, i) => [...(i ? [i === numbers.length - 1 ? " or " : ", "] : []), output(run, number)]);
}

/** What the exact predictor says, after what the model does. */
function judged(/** @type {import("./state.js").View} */ view, /** @type {number} */ top) {
  const { run, state, exact } = view;
  if (!run.task) return [];
  const due = exact?.get(state.pos);
  if (!due || Number.isNaN(due[0])) return [". No exact predictor is known for this sequence"];
  const name = state.reference.replaceAll("_", " ");
  const best = Math.max(...Array.from(due));
  const right = ranked(due).filter((number) => due[number] > best - 1e-6);
  if (right.includes(top) && right.length === 1) return [`, as the exact predictor, ${name}, does (${short(best)})`];
  const list = right.length > 6 ? [`any of ${right.length} ${run.named ? "classes" : "tokens"}`] : outputs(run, right);
  return [`${right.includes(top) ? "; the" : ", where the"} exact predictor, ${name}, says `, ...list, ` (${short(best)}${right.length > 1 ? " each" : ""})`];
}

/** Where the likeliest token is no answer of the task: the likeliest answer beside it. */
function noAnswer(/** @type {any} */ run, /** @type {ArrayLike<number>} */ said, /** @type {number} */ top) {
  if (run.answers.includes(top)) return [];
  const best = run.answers.reduce((/** @type {number} */ a, /** @type {number} */ b) => (said[b] > said[a] ? b : a));
  return [", which is no answer of the task; the likeliest answer is ", output(run, best), ` (${short(said[best])})`];
}

export function wordsPanel(/** @type {any} */ app) {
  const task = el("p", { class: "task" });
  const first = el("p", { class: "finding", role: "status" });
  const why = el("p");
  const needs = el("p");
  const node = el("section", { class: "wide words" }, task, first, why, needs);
  let turn = 0;

  /** Where a head looks. */
  const looks = (/** @type {import("./state.js").View} */ view, /** @type {any} */ site) => {
    const { run, state, shown } = view;
    if (site?.head === undefined) return [];
    const n = state.tokens.length;
    const weights = headPattern(shown, site.layer, site.head).subarray(state.pos * n, (state.pos + 1) * n);
    const [key] = ranked(weights, 1);
    if (key === state.pos) return [`; it looks at this token itself (${short(weights[key])})`];
    return ["; it looks most at ", token(run, state.tokens[key]), ` at ${positionName(run, key)} (${short(weights[key])})`];
  };

  /** Mean-ablate one part after the other: which of them the answer needs most. */
  const ablate = (/** @type {import("./state.js").View} */ view) => {
    const { run, state, model, answer, sources } = view;
    const left = attribution(model, view.shown, state.pos, answer, view.foil)
      .filter(({ site }) => site && site.layer !== undefined)
      .map(({ name, site }) => {
        const pass = forward(model, state.tokens, [...state.edits, { kind: "mean", site: /** @type {any} */ (site) }], sources);
        return { name, site, said: probabilities(pass, state.pos) };
      });
    const worst = left.reduce((a, b) => (b.said[answer] < a.said[answer] ? b : a));
    const before = probabilities(view.shown, state.pos)[answer];
    const after = worst.said[answer];
    if (before < 0.1) return needs.replaceChildren();
    if (before - after < 0.1) {
      needs.replaceChildren("No single part is needed for ", output(run, answer), `: whichever has its mean over sequences in its place, the probability stays at ${short(after)} or more.`);
      return;
    }
    const [top] = ranked(worst.said, 1);
    const instead = top === answer ? [] : [", and the model says ", output(run, top), ` (${short(worst.said[top])})`, ...noAnswer(run, worst.said, top)];
    needs.replaceChildren("It needs ", theCalled(run, worst.name), ` most: with its mean over sequences in its place the probability falls from ${short(before)} to ${short(after)}`, ...instead, ...looks(view, worst.site), ".");
  };

  return {
    node,
    build() {
      task.textContent = app.run.task?.about ?? "";
    },
    update(/** @type {import("./state.js").View} */ view) {
      const { run, state, model, clean, shown, other, differ, answer, foil } = view;
      turn += 1;
      const said = probabilities(shown, state.pos);
      const [top] = ranked(said, 1);
      const intact = probabilities(clean, state.pos);
      const [before] = ranked(intact, 1);
      const n = state.edits.length;
      const changed = n ? [` Without the ${n === 1 ? "change" : "changes"} it says `, output(run, before), ` (${short(intact[before])}).`] : [];
      const elsewhere = differ ? [" On the other sequence it says ", output(run, ranked(probabilities(other, state.pos), 1)[0]), "."] : [];
      first.replaceChildren(
        "After ", token(run, state.tokens[state.pos]), ` at ${positionName(run, state.pos)} the model${state.clamps ? ", with its clamps," : ""} says `, output(run, top), ` (probability ${short(said[top])})`,
        ...noAnswer(run, said, top), ...judged(view, top), ".", ...changed, ...elsewhere,
      );
      const ahead = margin(shown, state.pos, answer, foil);
      const most = attribution(model, shown, state.pos, answer, foil).filter(({ site, name }) => site || name === HELD).reduce((a, b) => (ahead * b.value > ahead * a.value ? b : a));
      why.replaceChildren(
        "The logit of ", output(run, answer), ` is ${short(Math.abs(ahead), 1)} ${ahead < 0 ? "below" : "above"} that of `, output(run, foil),
        `. Most of this comes directly from ${theCalled(run, most.name)}, ${short(most.value, 1, true)}`, ...looks(view, most.site), ".",
      );
      const own = turn;
      setTimeout(() => own === turn && ablate(view), 60);
    },
  };
}

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
  const lay = (/** @type {any} */ run, /** @type {number[]} */ read) => {
    const nBars = run.answers.length <= FEW ? run.answers.length : 1;
    places = read.map((pos) => {
      const of = document.createTextNode("");
      const bars = el("span", { class: "bars" }, ...Array.from({ length: nBars }, () => el("span", {}, el("i"), el("u"))));
      const says = el("b");
      const onclick = () => app.set({ pos, answer: null, foil: null });
      return { pos, of, bars, says, button: el("button", { class: "answer", onclick }, el("small", {}, of), bars, says) };
    });
    strip.replaceChildren(...places.map(({ button }) => button));
  };

  const drawPlace = (/** @type {import("./state.js").View} */ view, /** @type {typeof places[0]} */ { pos, button, of, bars, says }) => {
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
    says.textContent = run.outputs[top];
    button.className = `answer${pos === state.pos ? " chosen" : ""}${before === top ? "" : " changed"}`;
    button.setAttribute("aria-pressed", String(pos === state.pos));
    button.title = `after ${positionName(run, pos)}, ${run.symbols[state.tokens[pos]]}: ${run.outputs[top]}, probability ${short(said[top])}`;
  };

  return {
    node,
    build() {
      places = [];
    },
    update(/** @type {import("./state.js").View} */ view) {
      const { run, state, clean, other, shown, differ, exact } = view;
      const read = scoredIn(run, state.tokens);
      if (places.map(({ pos }) => pos).join() !== read.join()) lay(run, read);
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
          el("tr", {}, ...[run.named ? "class" : "token", ...columns.map((column) => column.name), "logit"].map((name) => el("th", { scope: "col" }, name))),
          ...tokens.map((/** @type {number} */ token) =>
            el(
              "tr",
              { class: token === view.answer ? "answer-row" : token === view.foil ? "foil-row" : "" },
              el("th", { scope: "row" }, run.outputs[token]),
              ...columns.map(({ kind, values }) => cell(kind, values[token])),
              el("td", {}, short(row(shown.logits, state.pos)[token])),
            ),
          ),
        ),
      );
      const options = (/** @type {string} */ own) =>
        /** @type {[string, string][]} */ ([["", own], ...tokens.map((/** @type {number} */ t) => [String(t), run.outputs[t]])]);
      const number = (/** @type {string} */ text) => (text === "" ? null : Number(text));
      const { names } = app.predictors;
      refill(asked, [state.run, tokens, view.answer, view.foil, state.answer, state.foil, state.reference], () => [
        chooser("explain", options(`its answer, ${run.outputs[view.answer]}`), String(state.answer ?? ""), (v) => app.set({ answer: number(v) })),
        chooser("against", options(run.outputs[view.foil]), String(state.foil ?? ""), (v) => app.set({ foil: number(v) })),
        ...(names.length
          ? [chooser("exact predictor", names.map((/** @type {string} */ name) => [name, name.replaceAll("_", " ")]), state.reference, (reference) => app.set({ reference }))]
          : []),
      ]);
    },
  };
}
