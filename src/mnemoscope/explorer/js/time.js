/** Walking through training: a slider over checkpoints, with the curves of training as its track. */
import { el, short, svg } from "./dom.js";

const [WIDTH, HEIGHT] = [1000, 64];
const FRAME = 450;

export function timePanel(/** @type {any} */ app) {
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  const legend = el("p", { class: "legend" });
  const slider = /** @type {HTMLInputElement} */ (el("input", { type: "range", min: 0, "aria-label": "checkpoint" }));
  const play = el("button", { class: "play tools" }, "▶");
  const step = el("output");
  const node = el("section", { class: "panel wide time" }, el("h2", {}, "Training"), el("div", { class: "track" }, picture, slider), el("div", { class: "actions" }, play, step), legend);
  let timer = 0;

  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "▶";
    play.setAttribute("aria-label", "play training");
  };
  slider.addEventListener("input", () => app.set({ checkpoint: Number(slider.value) }));
  play.addEventListener("click", () => {
    if (timer) return stop();
    const last = app.run.steps.length - 1;
    if (app.state.checkpoint === last) app.set({ checkpoint: 0 });
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "pause");
    timer = setInterval(() => {
      if (app.state.checkpoint >= app.run.steps.length - 1) stop();
      else app.set({ checkpoint: app.state.checkpoint + 1 });
    }, FRAME);
  });

  /** Where a step stands: checkpoints are evenly apart, as the slider is, steps between them in proportion. */
  const along = (/** @type {number[]} */ steps, /** @type {number} */ value) => {
    const after = steps.findIndex((each) => each >= value);
    if (after <= 0) return after === 0 ? 0 : WIDTH;
    const share = (value - steps[after - 1]) / (steps[after] - steps[after - 1]);
    return ((after - 1 + share) / (steps.length - 1)) * WIDTH;
  };

  return {
    node,
    build() {
      stop();
      const { run } = app;
      node.hidden = run.steps.length < 2;
      slider.max = String(run.steps.length - 1);
      const curves = run.curves;
      picture.replaceChildren();
      legend.replaceChildren();
      if (!curves || node.hidden) return;
      const names = Object.keys(curves.values);
      const most = curves.share ? 1 : Math.max(...curves.values[names[0]]);
      names.forEach((name, i) => {
        const points = curves.steps.map((/** @type {number} */ at, /** @type {number} */ j) =>
          `${along(run.steps, at).toFixed(1)},${(HEIGHT - 3 - (HEIGHT - 6) * (curves.values[name][j] / most)).toFixed(1)}`);
        picture.append(svg("polyline", { class: `curve c${i}`, points: points.join(" ") }));
        legend.append(el("span", { class: `c${i}` }, `${name.replaceAll("_", " ")}`));
      });
      legend.append(`${curves.share ? "accuracy on unseen sequences" : "on unseen sequences"}${run.clamps ? ", without clamps" : ""}`);
      picture.setAttribute("aria-label", `curves of training: ${names.join(", ")}`);
      picture.append(svg("line", { class: "now", y1: 0, y2: HEIGHT }));
    },
    update(/** @type {import("./state.js").View} */ view) {
      const { run, state } = view;
      slider.value = String(state.checkpoint);
      const now = picture.querySelector(".now");
      const x = run.steps.length > 1 ? (state.checkpoint / (run.steps.length - 1)) * WIDTH : 0;
      now?.setAttribute("x1", String(x));
      now?.setAttribute("x2", String(x));
      const told = run.curves ? Object.entries(run.curves.values).map(([name, values]) => {
        const at = run.curves.steps.findLastIndex((/** @type {number} */ each) => each <= run.steps[state.checkpoint]);
        return at < 0 ? "" : `${name.replaceAll("_", " ")} ${short(/** @type {number[]} */ (values)[at])}`;
      }).filter(Boolean) : [];
      step.textContent = `step ${run.steps[state.checkpoint]} of ${run.steps.at(-1)}${told.length ? `: ${told.join(", ")}` : ""}`;
      slider.setAttribute("aria-valuetext", step.textContent);
    },
  };
}
