/** The clamps of training in words, and the switch between the model with them and without. */
import { chooser, el, refill, short } from "./dom.js";
import { lacks, strays } from "./clamps.js";

const MODELS = /** @type {[string, string][]} */ ([
  ["", "without its clamps"],
  ["with", "with its clamps"],
]);

export function heldPanel(/** @type {any} */ app) {
  const choice = el("div", { class: "actions" });
  const list = el("ul", { class: "held" });
  const note = el("p", { class: "note" });
  const node = el("section", { class: "panel wide" }, el("h2", {}, "Clamps of its training"), choice, list, note);

  /** The part of a clamp that is in force at a checkpoint, in words. */
  const force = (/** @type {any} */ run, /** @type {number} */ checkpoint, /** @type {number} */ i) => {
    const share = run.clamps.shares[checkpoint][i];
    return share === 0 ? "not in force at this step" : share < 1 ? `in force by ${short(share)} at this step` : "in force";
  };

  return {
    node,
    build() {
      node.hidden = !app.run.clamps;
    },
    update(/** @type {import("./state.js").View} */ { run, state, model }) {
      if (!run.clamps) return;
      const { words, refused } = run.clamps;
      const { clamps, checkpoint } = state;
      refill(choice, [state.run, clamps], () => (refused ? [] : [chooser("show the model", MODELS, clamps, (chosen) => app.set({ clamps: chosen }))]));
      refill(list, [state.run, checkpoint], () =>
        words.map((/** @type {string} */ word, /** @type {number} */ i) => el("li", {}, el("code", {}, word), refused ? "" : ` ${force(run, checkpoint, i)}`)),
      );
      const stray = model.clamps?.some(strays) ? " A clamp of the stream or of the logits stands where parts add up: direct contributions count it with the biases, and the logit lens reads the stream alone." : "";
      const missing = model.clamps?.some((clamp) => lacks(clamp, state.tokens.length)) ? " The sequence lacks positions of a clamp: there nothing is held." : "";
      note.textContent = refused
        ? `The model is shown without its clamps. ${refused}`
        : clamps
          ? `This is the computation whose loss training went down, by the weights of this step. Your changes come after the clamps.${stray}${missing}`
          : "The weights as they are: what training left, with no clamp in force.";
    },
  };
}
