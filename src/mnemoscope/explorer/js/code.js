/** The state as Python code, and as command lines. */
import { el } from "./dom.js";
import { drawnRow } from "./means.js";
import { forCommands } from "./naming.js";

/** @returns {string} A value as Python writes it. */
function python(/** @type {any} */ value) {
  if (typeof value === "string") return `"${value}"`;
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  return String(value);
}

function call(/** @type {string} */ name, /** @type {Object<string, any>} */ fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  return `${name}(${given.map(([field, value]) => `${field}=${value}`).join(", ")})`;
}

const siteOf = (/** @type {any} */ site) =>
  site === "logits" ? '"logits"' : call("ms.Site", Object.fromEntries(Object.entries(site).map(([name, value]) => [name, python(value)])));

function interventions(/** @type {any} */ edit, /** @type {number} */ n) {
  const { edge } = edit;
  const through = edge?.through && python(edge.through);
  const site = edge ? call("ms.Edge", { writer: siteOf(edge.writer), reader: siteOf(edge.reader), through, pos: edge.pos }) : siteOf(edit.site);
  if (edit.kind === "zero") return call("ms.Zero", { site });
  if (edit.within) return call("ms.Mean", { site, source: `reference_of(${edit.within.map(python).join(", ")})` });
  if (edit.kind === "resample") return call("ms.Resample", { site, source: "one" });
  if (edit.kind === "mean") return call("ms.Mean", { site, source: "reference" });
  if (edit.kind === "patch") return call("ms.Patch", { site, source: "other" });
  if (edit.kind === "scale") return call("ms.Scale", { site, factor: edit.factor });
  const rows = Object.entries(edit.rows).map(([query, row]) => `${query}: ${python(row.map((/** @type {number} */ w) => Number(w.toFixed(6))))}`);
  return call("ms.SetPattern", { site, mechanism: `rows({${rows.join(", ")}}, n=${n})` });
}

/** Python that computes the logits on the screen. */
export function asPython(/** @type {any} */ run, /** @type {import("./state.js").State} */ state) {
  const kinds = new Set(state.edits.map(({ kind }) => kind));
  const n = state.tokens.length;
  const lines = [
    "import torch",
    "import mnemoscope as ms",
    "",
    run.python.start,
    ...(state.clamps ? ["run = ms.analyses.with_clamps(run)"] : []),
    "",
    "def batch(tokens):",
    "    tokens = torch.as_tensor(tokens)",
    "    return ms.Batch(inputs=tokens, targets=tokens, scored=torch.ones_like(tokens, dtype=torch.bool))",
    "",
  ];
  if (kinds.has("pattern")) {
    lines.push(
      "def rows(weights, n):",
      "    pattern = torch.full((n, n), torch.nan)",
      "    for query, row in weights.items():",
      "        pattern[query] = torch.tensor(row)",
      '    return ms.core.patterns.fixed("set", pattern)',
      "",
    );
  }
  if (kinds.has("mean") || kinds.has("resample")) lines.push(`drawn = ${run.python.drawn}`);
  if (state.edits.some(({ kind, within }) => kind === "mean" && !within)) {
    lines.push(`reference = ms.Named(name="reference", value=batch(drawn.inputs[:, :${n}]))`);
  }
  if (kinds.has("resample")) {
    const row = drawnRow(run, state.draw, state.tokens);
    lines.push(`one = ms.Named(name="sequence ${row}", value=batch(drawn.inputs[${row}:${row + 1}, :${n}]))`);
  }
  if (state.edits.some(({ within }) => within)) {
    lines.push(
      "",
      "def reference_of(latent, value):",
      `    inputs = drawn.inputs[drawn.latents[latent] == value, :${n}]`,
      '    return ms.Named(name=f"reference, {latent} = {value}", value=batch(inputs))',
      "",
    );
  }
  if (kinds.has("patch")) lines.push(`other = ms.Named(name="other sequence", value=batch([${python(state.other)}]))`);
  lines.push(
    `interventions = [${state.edits.map((edit) => `\n    ${interventions(edit, n)},`).join("")}${state.edits.length ? "\n" : ""}]`,
    `logits = ms.run_with(${run.python.model.replace("STEP", String(run.steps[state.checkpoint]))}, batch([${python(state.tokens)}]), interventions)[0]`,
    `print(logits[${state.pos}].softmax(-1))`,
  );
  return lines.join("\n");
}

const quoted = (/** @type {string} */ text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Commands that ask the same of this sequence, or of many. */
export function asCommands(/** @type {any} */ run, /** @type {import("./state.js").State} */ state, /** @type {string} */ fragment) {
  if (run.name === null) return "";
  const step = `--step ${run.steps[state.checkpoint]}`;
  const files = run.files.map((/** @type {string} */ file) => ` --dictionary ${quoted(file)}`).join("");
  const name = quoted(run.name);
  const asked = `${files}${state.clamps ? " --clamped" : ""}`;
  const lines = [`mnemoscope predict ${name} ${quoted(forCommands(run, state.tokens))} ${step}${state.clamps ? "      # without clamps" : ""}`];
  if (state.edits.some(({ kind, site }) => site && site.pos === undefined && (kind === "mean" || kind === "zero"))) {
    lines.push(`mnemoscope ablate ${name}${asked} ${step}      # over many sequences`);
  }
  if (state.edits.some(({ kind, site }) => site && kind === "patch")) lines.push(`mnemoscope patch ${name}${asked} ${step} --kind z --over layer head pos`);
  if (state.edits.some(({ edge }) => edge)) lines.push(`mnemoscope edges ${name}${asked} ${step}`);
  const units = state.edits.filter(({ site }) => site?.neuron !== undefined).map(({ site }) => `--layer ${site?.layer}${site?.kind === "feature" ? " --units features" : ""}`);
  lines.push(...[...new Set(units)].map((unit) => `mnemoscope neurons ${name}${asked} ${step} ${unit}`));
  return [...lines, `mnemoscope explore ${name}${files} --state ${quoted(fragment)}      # this page, as it is now`].join("\n");
}

export function codePanel(/** @type {any} */ app) {
  const texts = [el("pre", { id: "python", tabindex: 0 }), el("pre", { id: "commands", tabindex: 0 })];
  const title = el("summary");
  const copy = (/** @type {HTMLElement} */ text) => {
    const button = el("button", { class: "tools" }, "copy");
    button.addEventListener("click", () => {
      const range = document.createRange();
      range.selectNodeContents(text);
      const selection = /** @type {Selection} */ (getSelection());
      selection.removeAllRanges();
      selection.addRange(range);
      button.textContent = document.execCommand("copy") ? "copied" : "press Ctrl+C";
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
    return button;
  };
  const node = el(
    "details",
    { class: "panel wide" },
    title,
    ...texts.map((text) => el("div", {}, copy(text), text)),
  );
  return {
    node,
    build() {
      const named = app.run.name !== null;
      title.textContent = `The same in Python${named ? ", and as commands" : ""}`;
      /** @type {HTMLElement} */ (texts[1].parentElement).hidden = !named;
    },
    update(/** @type {import("./state.js").View} */ { run, state }) {
      texts[0].textContent = asPython(run, state);
      texts[1].textContent = asCommands(run, state, app.fragment());
    },
  };
}
