/** The attention of one head as a matrix and as arcs over the tokens; both follow the same query and key. */
import { chooser, el, refill, short, svg } from "./dom.js";
import { MOST_NAMED, fullColour, pointedMatrix } from "./matrix.js";
import { MECHANISM_NAMES, mechanismRows } from "./mechanisms.js";
import { called, component, partsIn, positionName, theCalled } from "./naming.js";
import { headPattern } from "./reading.js";

const LEAST = 0.02;
const STEP = 34;
const WAYS = /** @type {[string, string][]} */ ([
  ["shown", "as it is"],
  ["change", "what changed"],
  ["other", "on the other sequence"],
]);

export function attentionPanel(/** @type {any} */ app) {
  const heads = el("div", { class: "actions" });
  const said = el("p", { class: "note", role: "status", id: "attention-said" });
  const arcs = el("div", { class: "scroll arcs" });
  const set = el("div", { class: "actions tools" });
  const needed = el("p", { class: "note" });
  const matrix = pointedMatrix((query, key) => tell(query, key), {
    chosen: () => attendOnly(),
    carried: (query, from, to) => carry(query, from, to),
    described: "attention-said",
  });
  const node = el(
    "section",
    { class: "panel wide" },
    el("h2", {}, "Attention"),
    heads,
    needed,
    el("div", { class: "beside" }, matrix.node, el("div", {}, said, arcs, set)),
  );
  let started = false;
  let way = "shown";
  /** @type {?import("./state.js").View} */
  let view = null;

  const place = () => {
    const [layer, head] = app.state.head.split(".").map(Number);
    return { layer, head };
  };

  /** The weights of the head in a pass, (query, key). */
  const weights = (/** @type {any} */ pass) => {
    const { layer, head } = place();
    return headPattern(pass, layer, head);
  };
  const values = () => {
    const { shown, clean, other } = /** @type {import("./state.js").View} */ (view);
    if (way === "other") return weights(other);
    const now = weights(shown);
    return way === "change" ? weights(clean).map((/** @type {number} */ w, /** @type {number} */ i) => now[i] - w) : now;
  };

  const setRows = (/** @type {Object<number, number[]>} */ rows) => {
    const { layer, head } = place();
    const before = app.state.edits.find((/** @type {any} */ e) => e.kind === "pattern" && e.site.layer === layer && e.site.head === head);
    const others = app.state.edits.filter((/** @type {any} */ edit) => edit !== before);
    app.set({ edits: [...others, { kind: "pattern", site: { kind: "pattern", layer, head }, rows: { ...before?.rows, ...rows } }] });
  };
  const attendOnly = () => {
    const { row: query, column: key } = matrix.at;
    const n = app.state.tokens.length;
    if (app.run.cfg.causal && key > query) return;
    setRows({ [query]: Array.from({ length: n }, (_, i) => (i === key ? 1 : 0)) });
  };
  /** Let a query attend to one key as much more as it attended to another, and to that no more. */
  const carry = (/** @type {number} */ query, /** @type {number} */ from, /** @type {number} */ to) => {
    if (!view || way !== "shown" || (app.run.cfg.causal && Math.max(from, to) > query)) return;
    const n = app.state.tokens.length;
    const row = Array.from(weights(view.shown).subarray(query * n, (query + 1) * n));
    row[to] += row[from];
    row[from] = 0;
    setRows({ [query]: row });
  };

  const tell = (/** @type {number} */ query, /** @type {number} */ key) => {
    if (!view) return;
    const { run, state } = view;
    const n = state.tokens.length;
    const tokens = way === "other" ? state.other : state.tokens;
    const name = (/** @type {number} */ pos) => `${run.symbols[tokens[pos]]} (${positionName(run, pos)})`;
    const all = values();
    const verb = way === "change" ? "changes by" : "is";
    said.textContent = `From ${name(query)} to ${name(key)} attention ${verb} ${short(all[query * n + key], 3, way === "change")}.`;
    drawArcs(all, tokens, query, key);
  };

  /** Arcs from the chosen query to its keys; those of all other queries behind it, where there is room. */
  const drawArcs = (/** @type {ArrayLike<number>} */ all, /** @type {number[]} */ tokens, /** @type {number} */ at, /** @type {number} */ to) => {
    const n = tokens.length;
    const most = fullColour(all, !app.run.cfg.linear && way !== "change");
    const longest = Math.max(1, ...Array.from({ length: n }, (_, key) => (Math.abs(all[at * n + key]) / most > LEAST ? Math.abs(at - key) : 0)));
    const high = Math.min(110, 26 + 10 * (n <= MOST_NAMED ? n - 1 : longest));
    const picture = svg("svg", { width: n * STEP, height: high + 24, viewBox: `0 0 ${n * STEP} ${high + 24}`, "aria-hidden": "true" });
    const x = (/** @type {number} */ pos) => (pos + 0.5) * STEP;
    const arc = (/** @type {number} */ query, /** @type {number} */ key, /** @type {string} */ kind) => {
      const weight = all[query * n + key] / most;
      if (Math.abs(weight) < LEAST) return;
      const up = high - Math.min(high - 6, 12 + 10 * Math.abs(query - key));
      const d = query === key
        ? `M${x(key) - 5},${high} C${x(key) - 12},${high - 24} ${x(key) + 12},${high - 24} ${x(key) + 5},${high}`
        : `M${x(query)},${high} C${x(query)},${up} ${x(key)},${up} ${x(key)},${high}`;
      const style = `stroke-width:${(0.5 + 4 * Math.abs(weight)).toFixed(2)};stroke-opacity:${Math.min(1, 0.15 + Math.abs(weight)).toFixed(2)}`;
      picture.append(svg("path", { d, class: `arc ${kind}${weight < 0 ? " less" : ""}`, style }));
    };
    if (n <= MOST_NAMED) {
      for (let query = 0; query < n; query++) for (let key = 0; key < n; key++) if (query !== at) arc(query, key, "faint");
    }
    for (let key = 0; key < n; key++) arc(at, key, "strong");
    tokens.forEach((token, pos) => {
      const onclick = () => matrix.point(pos, to);
      const kind = pos === at ? "query" : pos === to ? "key" : "";
      picture.append(svg("text", { x: x(pos), y: high + 16, class: kind, onclick }, app.run.symbols[token]));
    });
    arcs.replaceChildren(picture);
    requestAnimationFrame(() => {
      const [from, end] = [arcs.scrollLeft, arcs.scrollLeft + arcs.clientWidth - STEP];
      if (x(at) < from || x(at) > end) arcs.scrollLeft = x(at) - arcs.clientWidth + STEP;
    });
  };

  /** What removing the head costs over many sequences, as measured when the page was written. */
  const overall = (/** @type {any} */ run, /** @type {string} */ name) => {
    const without = run.needs?.without[name];
    if (!without) return "";
    const told = run.needs.skills.map((/** @type {string} */ skill, /** @type {number} */ i) => `${skill.replaceAll("_", " ")} ${short(run.needs.clean[i])} → ${short(without[i])}`);
    return `Over ${run.needs.n} unseen sequences a skill, at the last checkpoint${run.clamps ? " and without clamps" : ""}, accuracy without ${theCalled(run, name)} (its mean instead): ${told.join(", ")}.`;
  };

  return {
    node,
    build() {
      started = false;
    },
    update(/** @type {import("./state.js").View} */ current) {
      const lastPos = view?.state.pos;
      view = current;
      const { run, state, differ } = current;
      const n = state.tokens.length;
      const { layer, head } = place();
      const own = partsIn(run.cfg).filter(({ head }) => head !== undefined);
      const options = own.map((site) => /** @type {[string, string]} */ ([`${site.layer}.${site.head}`, called(run, component(site))]));
      const ways = WAYS.filter(([name]) => (name === "change" ? state.edits.length : name === "other" ? differ : true));
      if (!ways.some(([name]) => name === way)) way = "shown";
      refill(heads, [state.run, state.head, ways, way], () => [
        ...(options.length > 1 ? [chooser("head", options, state.head, (name) => app.set({ head: name }))] : []),
        ...(ways.length > 1 ? [chooser("shown", ways, way, (name) => ((way = name), app.repaint()))] : []),
      ]);
      needed.textContent = overall(run, `L${layer}H${head}`);
      const tokens = way === "other" ? state.other : state.tokens;
      const all = values();
      const most = fullColour(all, !run.cfg.linear && way !== "change");
      const names = tokens.map((token) => run.symbols[token]);
      const label = `attention of ${theCalled(run, `L${layer}H${head}`)}, ${n} queries by ${n} keys; arrow keys move, with Shift they take the attention along, Enter sets`;
      matrix.draw(all, n, most, { rows: names, columns: names, label });
      if (!started || lastPos !== state.pos || matrix.at.row >= n) {
        const row = Array.from(all.subarray(state.pos * n, (state.pos + 1) * n));
        matrix.point(state.pos, row.indexOf(Math.max(...row)));
        started = true;
      } else matrix.point(matrix.at.row, matrix.at.column);
      const choices = /** @type {[string, string][]} */ ([["", "…"], ...MECHANISM_NAMES.map((name) => [name, name])]);
      refill(set, state.edits.length, () => [
        el("span", {}, "drag a cell along its row, or"),
        el("button", { onclick: attendOnly }, "attend only there"),
        chooser("or set it to", choices, "", (name) => name && setRows(mechanismRows(name, app.state.tokens))),
      ]);
    },
  };
}
