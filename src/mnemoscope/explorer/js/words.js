/** What the model says and why, in sentences: the answer, the part that adds most to it, where that looks, what it needs. */
import { el, short } from "./dom.js";
import { forward } from "./forward.js";
import { positionName, theCalled } from "./naming.js";
import { attribution, headPattern, margin, probabilities, ranked } from "./reading.js";

/** A token as it stands in a sentence. */
const token = (/** @type {any} */ run, /** @type {number} */ number) => el("b", { class: "tok" }, run.symbols[number]);

/** Several of them. */
function tokens(/** @type {any} */ run, /** @type {number[]} */ numbers) {
  return numbers.flatMap((number, i) => [...(i ? [i === numbers.length - 1 ? " or " : ", "] : []), token(run, number)]);
}

/** What the exact predictor says, after what the model does. */
function judged(/** @type {import("./view.js").View} */ view, /** @type {number} */ top) {
  const { run, state, exact } = view;
  if (!run.task) return [];
  const due = exact?.get(state.pos);
  if (!due || Number.isNaN(due[0])) return [". No exact predictor is known for this sequence"];
  const name = state.reference.replaceAll("_", " ");
  const best = Math.max(...Array.from(due));
  const right = ranked(due).filter((number) => due[number] > best - 1e-6);
  if (right.includes(top) && right.length === 1) return [`, as the exact predictor, ${name}, does (${short(best)})`];
  const list = right.length > 6 ? [`any of ${right.length} tokens`] : tokens(run, right);
  return [`${right.includes(top) ? "; the" : ", where the"} exact predictor, ${name}, says `, ...list, ` (${short(best)}${right.length > 1 ? " each" : ""})`];
}

export function wordsPanel(/** @type {any} */ app) {
  const first = el("p", { class: "finding", role: "status" });
  const why = el("p");
  const needs = el("p");
  const node = el("section", { class: "wide words" }, first, why, needs);
  let turn = 0;

  /** Where a head looks. */
  const looks = (/** @type {import("./view.js").View} */ view, /** @type {any} */ site) => {
    const { run, state, shown } = view;
    if (site.head === undefined) return [];
    const n = state.tokens.length;
    const weights = headPattern(shown, site.layer, site.head).subarray(state.pos * n, (state.pos + 1) * n);
    const [key] = ranked(weights, 1);
    if (key === state.pos) return [`; it looks at this token itself (${short(weights[key])})`];
    return ["; it looks most at ", token(run, state.tokens[key]), ` at ${positionName(run, key)} (${short(weights[key])})`];
  };

  /** Mean-ablate one part after the other: which of them the answer needs most. */
  const ablate = (/** @type {import("./view.js").View} */ view) => {
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
      needs.replaceChildren("No single part is needed for ", token(run, answer), `: whichever has its mean over sequences in its place, the probability stays at ${short(after)} or more.`);
      return;
    }
    const [top] = ranked(worst.said, 1);
    const instead = top === answer ? [] : [", and the model says ", token(run, top), ` (${short(worst.said[top])})`];
    needs.replaceChildren("It needs ", theCalled(run, worst.name), ` most: with its mean over sequences in its place the probability falls from ${short(before)} to ${short(after)}`, ...instead, ...looks(view, worst.site), ".");
  };

  return {
    node,
    build() {},
    update(/** @type {import("./view.js").View} */ view) {
      const { run, state, model, clean, shown, other, differ, answer, foil } = view;
      turn += 1;
      const said = probabilities(shown, state.pos);
      const [top] = ranked(said, 1);
      const intact = probabilities(clean, state.pos);
      const [before] = ranked(intact, 1);
      const n = state.edits.length;
      const changed = n ? [` Without the ${n === 1 ? "change" : "changes"} it says `, token(run, before), ` (${short(intact[before])}).`] : [];
      const elsewhere = differ ? [" On the other sequence it says ", token(run, ranked(probabilities(other, state.pos), 1)[0]), "."] : [];
      first.replaceChildren(
        "After ", token(run, state.tokens[state.pos]), ` at ${positionName(run, state.pos)} the model says `, token(run, top), ` (probability ${short(said[top])})`,
        ...judged(view, top), ".", ...changed, ...elsewhere,
      );
      const ahead = margin(shown, state.pos, answer, foil);
      const most = attribution(model, shown, state.pos, answer, foil).filter(({ site }) => site).reduce((a, b) => (ahead * b.value > ahead * a.value ? b : a));
      why.replaceChildren(
        "The logit of ", token(run, answer), ` is ${short(Math.abs(ahead), 1)} ${ahead < 0 ? "below" : "above"} that of `, token(run, foil),
        `. Most of this comes directly from ${theCalled(run, most.name)}, ${short(most.value, 1, true)}`, ...looks(view, most.site), ".",
      );
      const own = turn;
      setTimeout(() => own === turn && ablate(view), 60);
    },
  };
}
