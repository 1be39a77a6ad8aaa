/** The two sequences, token by token: choose one and give it another value; draw, pair, paste. */
import { el } from "./dom.js";
import { positionName, readTyped, typed } from "./naming.js";

const NAMES = /** @type {Object<string, string>} */ ({ tokens: "sequence", other: "other sequence" });

/**
 * The sequence that an example stands beside: its first minimal pair; where the task has none of any, or there is no
 * task, the next example; else the example itself.
 *
 * @returns {number[]}
 */
export function partner(/** @type {any} */ run, /** @type {any} */ example) {
  const [pair] = /** @type {any[]} */ (Object.values(example.pairs));
  if (pair) return pair.tokens;
  const paired = run.examples.some((/** @type {any} */ one) => Object.keys(one.pairs).length);
  const next = run.examples[(run.examples.indexOf(example) + 1) % run.examples.length];
  return paired ? example.tokens : next.tokens;
}

export function sequencePanel(/** @type {any} */ app) {
  const rows = el("div", { class: "rows" });
  const palette = el("div", { class: "palette tools", role: "group" });
  const said = el("p", { class: "said", role: "status" });
  const draws = el("div", { class: "actions tools" });
  const taskless = el("p", { class: "note" });
  const node = el("section", { class: "panel wide" }, el("h2", {}, "Two sequences"), taskless, draws, rows, palette, said);
  let chosen = { row: "tokens", pos: 1 };
  const fresh = { answer: null, foil: null };

  const put = (/** @type {number} */ token) => {
    const tokens = app.state[chosen.row].slice();
    tokens[chosen.pos] = token;
    app.set({ [chosen.row]: tokens, ...fresh });
  };
  const draw = (/** @type {string} */ group) => {
    const examples = app.run.examples.filter((/** @type {any} */ one) => !group || one.group === group);
    const drawn = examples[Math.floor(Math.random() * examples.length)];
    app.set({ tokens: drawn.tokens, other: partner(app.run, drawn), pos: null, ...fresh });
  };
  const drawOther = () => {
    const { tokens, other } = app.state;
    const unlike = app.run.examples.filter((/** @type {any} */ one) =>
      one.tokens.length === tokens.length && ![tokens.join(), other.join()].includes(one.tokens.join()));
    if (unlike.length) app.set({ other: unlike[Math.floor(Math.random() * unlike.length)].tokens, pos: null, ...fresh });
  };

  const pairOf = () => {
    const text = app.state.tokens.join();
    return app.run.examples.find((/** @type {any} */ one) => one.tokens.join() === text);
  };

  /** Arrows go along, up and down give the next value, a symbol gives that one. */
  const typedAt = (/** @type {KeyboardEvent} */ event) => {
    const { row, pos } = chosen;
    const last = app.state.tokens.length - 1;
    const alphabet = app.run.alphabet;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const turn = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    const token = app.run.symbols.indexOf(event.key);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (step) choose(row, Math.min(last, Math.max(0, pos + step)), true);
    else if (turn) put(alphabet[(alphabet.indexOf(app.state[row][pos]) + turn + alphabet.length) % alphabet.length]);
    else if (alphabet.includes(token)) put(token);
    else return;
    event.preventDefault();
  };

  const choose = (/** @type {string} */ row, /** @type {number} */ pos, focus = false) => {
    chosen = { row, pos };
    mark();
    if (focus) buttons(row)[pos]?.focus();
  };
  const buttons = (/** @type {string} */ row) =>
    /** @type {HTMLElement[]} */ ([...rows.querySelectorAll(`[data-row="${row}"] .token`)]);

  const mark = () => {
    const { run, state } = app;
    for (const row of Object.keys(NAMES)) {
      buttons(row).forEach((button, pos) => {
        const token = state[row][pos];
        const on = row === chosen.row && pos === chosen.pos;
        button.textContent = run.symbols[token];
        button.className = ["token", on && "chosen", state.tokens[pos] !== state.other[pos] && "differs", pos === state.pos && "read"]
          .filter(Boolean)
          .join(" ");
        button.tabIndex = on ? 0 : -1;
        button.setAttribute("aria-label", `${NAMES[row]}, ${positionName(run, pos)}: ${run.symbols[token]}`);
      });
      const edit = /** @type {HTMLInputElement} */ (rows.querySelector(`[data-row="${row}"] input`));
      if (edit !== document.activeElement) edit.value = typed(run, state[row]);
    }
    const now = state[chosen.row][chosen.pos];
    /** @type {Element} */ (palette.firstElementChild).textContent = `${positionName(run, chosen.pos)} of the ${NAMES[chosen.row]}:`;
    for (const button of palette.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.token) === now));
    }
  };

  const paste = (/** @type {string} */ row, /** @type {string} */ text) => {
    try {
      const tokens = readTyped(app.run, text);
      const other = row === "tokens" && tokens.length !== app.state.other.length ? { other: tokens } : {};
      if (row === "other" && tokens.length !== app.state.tokens.length) {
        throw new Error(`both sequences must be of one length, here ${app.state.tokens.length}`);
      }
      app.set({ [row]: tokens, ...other, ...fresh });
    } catch (error) {
      said.textContent = /** @type {Error} */ (error).message;
      said.className = "said warn";
    }
  };

  const build = () => {
    const { run, state } = app;
    chosen = { row: "tokens", pos: Math.max(0, Math.min(chosen.pos, state.tokens.length - 1)) };
    rows.replaceChildren(
      ...Object.entries(NAMES).map(([row, name]) => {
        const tokens = state[row].map((/** @type {number} */ token, /** @type {number} */ pos) => {
          const onclick = () => choose(row, pos);
          const edge = pos % run.slot === 0 && run.slot > 1 && pos > 0 ? " slot" : "";
          return el("span", { class: `place${edge}` }, el("button", { class: "token", onclick, onkeydown: typedAt }, run.symbols[token]));
        });
        const onchange = (/** @type {any} */ event) => paste(row, event.target.value);
        const field = el("input", { type: "text", class: "tools", "aria-label": `type or paste the ${name}`, onchange, spellcheck: "false" });
        const label = el("span", { class: "name" }, name);
        return el("div", { class: "sequence", "data-row": row }, label, el("div", { class: "tokens-row" }, ...tokens), field);
      }),
    );
    palette.replaceChildren(
      el("span", { class: "name" }),
      ...run.alphabet.map((/** @type {number} */ token) =>
        el("button", { "data-token": token, onclick: () => put(token) }, run.symbols[token]),
      ),
    );
    taskless.textContent = run.task ? "" : "The model came without a task: there are no exact predictors and no minimal pairs, and parts have no roles.";
    const groups = [...new Set(run.examples.map((/** @type {any} */ one) => one.group))].filter(Boolean);
    const kinds = [...new Set(run.examples.flatMap((/** @type {any} */ one) => Object.keys(one.pairs)))];
    const button = (/** @type {string} */ text, /** @type {() => void} */ onclick, extra = {}) => el("button", { onclick, ...extra }, text);
    draws.replaceChildren(
      el("span", { class: "name" }, "draw"),
      ...(groups.length ? groups : [""]).map((group) => button(String(group) || "a sequence", () => draw(String(group)))),
      el("span", { class: "name" }, "other sequence"),
      ...kinds.map((kind) =>
        button(String(kind).replaceAll("_", " "), () => app.set({ other: pairOf().pairs[String(kind)].tokens, pos: null, ...fresh }), {
          "data-kind": kind,
        }),
      ),
      button("any other", drawOther, { title: "another of the sequences that came with the page" }),
      button("a copy", () => app.set({ other: app.state.tokens, ...fresh })),
      button("swap the two", () => app.set({ tokens: app.state.other, other: app.state.tokens, ...fresh })),
    );
  };

  return {
    node,
    build,
    update() {
      if (buttons("tokens").length !== app.state.tokens.length) build();
      mark();
      const known = pairOf();
      for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (draws.querySelectorAll("[data-kind]"))) {
        button.disabled = !known?.pairs[/** @type {string} */ (button.dataset.kind)];
        button.title = button.disabled ? "known for the task's own sequences of the right kind: draw one" : "";
      }
      const complaints = Object.entries(NAMES).flatMap(([row, name]) => {
        const complaint = app.predictors.complaint(app.state[row]);
        if (!complaint) return [];
        return [app.run.task ? `The task never shows this ${name}: ${complaint}.` : `In this ${name}, ${complaint}.`];
      });
      said.textContent = complaints.join(" ");
      said.className = complaints.length ? "said warn" : "said";
    },
  };
}
