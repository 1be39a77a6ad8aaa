/**
 * What is seen as one picture of its own: attention, parts and predictions, as SVG with its fonts and colours inside.
 *
 * It has the light colours whatever the page has, since it goes where paper is white.
 */
import { short, svg } from "./dom.js";
import { fullColour } from "./matrix.js";
import { called, inWords, positionName, typed } from "./naming.js";
import { attribution, headPattern, margin, probabilities, ranked } from "./reading.js";

const INK = "#1d2433";
const SOFT = "#5b6577";
const LINE = "#dde2ea";
const PRINTED = { more: [27, 79, 158], less: [217, 119, 6] };
const FONT = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
const MONO = "ui-monospace, 'DejaVu Sans Mono', monospace";
const WIDE = 960;
const EDGE = 24;
const SQUARE = 320;
const LINE_HEIGHT = 20;
const LONGEST = 118;
const MOST_WRITTEN = 24;
const MOST_TOKENS = 10;

/** A colour on white, as strong as a share from −1 to 1. */
function shade(/** @type {number} */ share) {
  const colour = share < 0 ? PRINTED.less : PRINTED.more;
  const strength = Math.min(1, Math.abs(share));
  return `rgb(${colour.map((channel) => Math.round(255 + (channel - 255) * strength)).join(",")})`;
}

const label = (/** @type {number} */ x, /** @type {number} */ y, /** @type {string} */ words, more = {}) =>
  svg("text", { x, y, "font-size": 13, fill: INK, ...more }, words);
const bar = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ width, /** @type {number} */ height, /** @type {string} */ fill) =>
  svg("rect", { x: x.toFixed(1), y: y.toFixed(1), width: Math.max(0, width).toFixed(1), height: height.toFixed(1), fill });

/** A text cut into lines, between words where there are any. */
function lined(/** @type {string} */ text) {
  const pattern = new RegExp(`.{1,${LONGEST}}(?: |$)|.{1,${LONGEST}}`, "gu");
  return (text.match(pattern) ?? [""]).map((line) => line.trimEnd());
}

/** What the picture is of: model, sequences, changes. */
function heading(/** @type {import("./state.js").View} */ view) {
  const { run, state, differ } = view;
  const seed = run.seed === null ? "" : `, seed ${run.seed}`;
  const step = run.steps.length > 1 ? `, step ${run.steps[state.checkpoint]}` : "";
  const told = [`sequence: ${typed(run, state.tokens)}`, ...(differ ? [`other sequence: ${typed(run, state.other)}`] : [])];
  if (state.edits.length) told.push(`changes: ${state.edits.map((edit) => inWords(run, edit)).join("; ")}`);
  const clamps = state.clamps ? ", with its clamps" : "";
  return { title: `${run.label}${seed}${step}${clamps}`, lines: told.flatMap(lined) };
}

/** The attention of the chosen head with the changes in force, from a corner on. */
function attention(/** @type {import("./state.js").View} */ { run, state, shown }, /** @type {number} */ left, /** @type {number} */ top) {
  const [layer, head] = state.head.split(".").map(Number);
  const n = state.tokens.length;
  const weights = Array.from(headPattern(shown, layer, head));
  const most = fullColour(weights, !run.cfg.linear);
  const cell = SQUARE / n;
  const [x, y] = [left + 20, top + 44];
  const names = n <= MOST_WRITTEN ? state.tokens.map((token) => run.symbols[token]) : [];
  const mono = { "font-family": MONO, "font-size": 12, "text-anchor": "middle", fill: SOFT };
  return svg(
    "g", {},
    label(left, top + 14, `attention of ${called(run, `L${layer}H${head}`)}`, { "font-weight": 600 }),
    ...weights.flatMap((weight, i) => (Math.abs(weight / most) < 0.005 ? [] : [bar(x + (i % n) * cell, y + Math.floor(i / n) * cell, cell, cell, shade(weight / most))])),
    svg("rect", { x, y, width: SQUARE, height: SQUARE, fill: "none", stroke: LINE }),
    ...names.map((name, i) => label(x + (i + 0.5) * cell, y - 6, name, mono)),
    ...names.map((name, i) => label(x - 11, y + (i + 0.5) * cell + 4, name, mono)),
  );
}

/** What every part adds directly, from a corner on; and how high that is. */
function parts(/** @type {import("./state.js").View} */ { run, state, model, shown, answer, foil }, /** @type {number} */ left, /** @type {number} */ top) {
  const difference = `logit of ${run.outputs[answer]} minus that of ${run.outputs[foil]}`;
  const total = margin(shown, state.pos, answer, foil);
  const shares = [...attribution(model, shown, state.pos, answer, foil), { name: difference, value: total }];
  const rest = total - shares.slice(0, -2).reduce((sum, { value }) => sum + value, 0);
  shares[shares.length - 2].value = rest; // biases, and what was written into the stream itself
  const most = Math.max(...shares.map(({ value }) => Math.abs(value)), 1e-9);
  const [middle, half] = [left + 330, 90];
  const node = svg(
    "g", {},
    label(left, top + 14, `what each part adds directly, after ${positionName(run, state.pos)}`, { "font-weight": 600 }),
    svg("line", { x1: middle, x2: middle, y1: top + 24, y2: top + 26 + LINE_HEIGHT * shares.length, stroke: LINE }),
    ...shares.flatMap(({ name, value }, i) => {
      const y = top + 40 + i * LINE_HEIGHT;
      const width = (half * Math.abs(value)) / most;
      const bold = i === shares.length - 1 ? { "font-weight": 600 } : {};
      return [
        label(left, y, called(run, name), bold),
        bar(value < 0 ? middle - width : middle, y - 10, width, 12, shade(value < 0 ? -1 : 1)),
        label(left + 500, y, short(value, 2, true), { "text-anchor": "end", ...bold }),
      ];
    }),
  );
  return { node, height: 40 + LINE_HEIGHT * shares.length };
}

/** What the model says at the chosen position, from a corner on; and how high that is. */
function predictions(/** @type {import("./state.js").View} */ view, /** @type {number} */ left, /** @type {number} */ top) {
  const { run, state, clean, shown, other, differ, exact } = view;
  const due = exact?.get(state.pos);
  const columns = [
    { name: "model", values: probabilities(clean, state.pos) },
    ...(state.edits.length ? [{ name: "with changes", values: probabilities(shown, state.pos) }] : []),
    ...(differ ? [{ name: "other sequence", values: probabilities(other, state.pos) }] : []),
    ...(due && !Number.isNaN(due[0]) ? [{ name: state.reference.replaceAll("_", " "), values: due }] : []),
  ];
  const most = Array.from(columns[0].values, (_, i) => Math.max(...columns.map(({ values }) => values[i])));
  const tokens = ranked(most, MOST_TOKENS).filter((token) => most[token] >= 0.005 || token === view.answer).sort((a, b) => a - b);
  const wide = Math.min(220, (WIDE - 2 * EDGE - 60) / columns.length);
  const place = `${positionName(run, state.pos)}, ${run.symbols[state.tokens[state.pos]]}`;
  const node = svg(
    "g", {},
    label(left, top + 14, `probability of what follows ${place}`, { "font-weight": 600 }),
    ...columns.map(({ name }, i) => label(left + 60 + i * wide, top + 36, name, { fill: SOFT })),
    ...tokens.flatMap((token, line) => {
      const y = top + 58 + line * LINE_HEIGHT;
      const cells = columns.flatMap(({ values }, i) => [
        bar(left + 60 + i * wide, y - 10, (wide - 70) * values[token], 12, shade(1)),
        label(left + 60 + i * wide + wide - 24, y, short(values[token]), { "text-anchor": "end" }),
      ]);
      return [label(left + 20, y, run.symbols[token], { "font-family": MONO, "text-anchor": "middle" }), ...cells];
    }),
  );
  return { node, height: 58 + LINE_HEIGHT * tokens.length };
}

/** @returns {string} The picture, as the text of a file. */
export function picture(/** @type {import("./state.js").View} */ view) {
  const { title, lines } = heading(view);
  const top = EDGE + 34 + LINE_HEIGHT * lines.length;
  const own = parts(view, EDGE + SQUARE + 60, top);
  const below = top + Math.max(own.height, SQUARE + 56) + 14;
  const said = predictions(view, EDGE, below);
  const height = below + said.height + EDGE;
  const node = svg(
    "svg", { xmlns: "http://www.w3.org/2000/svg", width: WIDE, height, viewBox: `0 0 ${WIDE} ${height}`, "font-family": FONT },
    svg("title", {}, title),
    svg("rect", { width: WIDE, height, fill: "#fff" }),
    label(EDGE, EDGE + 12, title, { "font-size": 18, "font-weight": 600 }),
    ...lines.map((line, i) => label(EDGE, EDGE + 38 + i * LINE_HEIGHT, line, { fill: SOFT })),
    attention(view, EDGE, top),
    own.node,
    said.node,
  );
  return new XMLSerializer().serializeToString(node);
}

/** Let the browser save a text as a file. */
export function save(/** @type {string} */ text, /** @type {string} */ name, /** @type {string} */ type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = /** @type {HTMLAnchorElement} */ (document.createElement("a"));
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
