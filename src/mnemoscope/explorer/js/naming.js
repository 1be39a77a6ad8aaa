/**
 * What things are called: tokens, places, parts by their roles, and edits in words.
 *
 * @typedef {import("./edits.js").Edit} Edit
 * @typedef {import("./edits.js").Site} Site
 */

/** `L0H1`, `L0 MLP`, and embeddings in words. */
export function component(/** @type {Site|"logits"} */ site) {
  if (site === "logits") return "logits";
  if (site.layer === undefined) return site.kind === "embed" ? "token embedding" : "position embedding";
  return site.head === undefined ? `L${site.layer} MLP` : `L${site.layer}H${site.head}`;
}

/**
 * The embeddings that are added to the residual stream.
 *
 * @param {import("./weights.js").Config} cfg
 * @returns {Site[]}
 */
export function embeddingsIn(cfg) {
  return [{ kind: "embed" }, ...(cfg.rotary ? [] : [{ kind: "pos_embed" }])];
}

/**
 * Where heads and the MLP of every layer write, in their order.
 *
 * @param {import("./weights.js").Config} cfg
 * @returns {Site[]}
 */
export function partsIn(cfg) {
  return Array.from({ length: cfg.n_layers }, (_, layer) => [
    ...Array.from({ length: cfg.n_heads }, (_, head) => ({ kind: "z", layer, head })),
    ...(cfg.d_mlp ? [{ kind: "mlp_out", layer }] : []),
  ]).flat();
}

/** A position as the task calls it, else by its number from 0. */
export function positionName(/** @type {any} */ run, /** @type {number} */ pos) {
  return run.positions[pos] ?? `position ${pos}`;
}

/** A part by its role, with its number behind. */
export function called(/** @type {any} */ run, /** @type {string} */ name) {
  const role = run.roles[name];
  return role && role !== name ? `${role.replaceAll("_", " ")} (${name})` : name;
}

/** The same in a sentence: with an article, unless it is a head that has a number only. */
export function theCalled(/** @type {any} */ run, /** @type {string} */ name) {
  const words = called(run, name);
  return /^(the |L\d+H\d+$)/.test(words) ? words : `the ${words}`;
}

/** Whether sequences are written without spaces: where tokens are the characters of a text. */
function isText(/** @type {any} */ run) {
  return run.cfg.d_vocab > 12 && run.symbols.every((/** @type {string} */ word) => [...word].length === 1);
}

/** A sequence as commands take it: a page shows spaces and tabs of a text, which have none of these signs there. */
export function forCommands(/** @type {any} */ run, /** @type {number[]} */ tokens) {
  const text = typed(run, tokens);
  return isText(run) ? text.replaceAll("␣", " ").replaceAll("⇥", "\t") : text;
}

/** A sequence as one would type it. */
export function typed(/** @type {any} */ run, /** @type {number[]} */ tokens) {
  return tokens.map((token) => run.symbols[token]).join(isText(run) ? "" : " ");
}

/**
 * The tokens of a typed sequence.
 *
 * @returns {number[]} An error, in words, if something is no token.
 */
export function readTyped(/** @type {any} */ run, /** @type {string} */ text) {
  const words = isText(run) ? [...text.replaceAll("\n", "⏎").replaceAll(" ", "␣")] : text.split(/[\s,]+/).filter(Boolean);
  if (!words.length || words.length > run.cfg.n_ctx) {
    throw new Error(`a sequence has 1 to ${run.cfg.n_ctx} tokens; got ${words.length}`);
  }
  return words.map((word) => {
    const token = run.symbols.indexOf(word);
    if (token < 0) throw new Error(`there is no token ${word}`);
    return token;
  });
}

/** A class of sequences, as one reads it. */
export function className(/** @type {import("./edits.js").Class} */ [latent, value]) {
  return `${latent.replaceAll("_", " ")} = ${value}`;
}

/** What stands on the switch of a part that an edit has switched off. */
export function onSwitch(/** @type {Edit} */ edit) {
  if (edit.within) return "class";
  return /** @type {Object<string, string>} */ ({ patch: "other", resample: "drawn" })[edit.kind] ?? edit.kind;
}

const DONE = { patch: "from the other sequence", resample: "from a random sequence", pattern: "set", scale: "scaled" };
/** What heads compute from what they read. */
export const READS = /** @type {Object<string, string>} */ ({ q: "query", k: "key", v: "value" });

/** An edit in words. */
export function inWords(/** @type {any} */ run, /** @type {Edit} */ edit) {
  const plain = /** @type {Object<string, string>} */ (DONE)[edit.kind] ?? edit.kind;
  const how = edit.within ? `${plain} where ${className(edit.within)}` : plain;
  if (edit.edge) {
    const { writer, reader, through } = edit.edge;
    return `${component(writer)} → ${component(reader)}${through ? ` ${through}` : ""} cut: ${how}`;
  }
  const site = /** @type {Site} */ (edit.site);
  const at = site.pos === undefined ? "" : ` at ${positionName(run, site.pos)}`;
  if (edit.kind === "pattern") {
    const queries = Object.keys(edit.rows ?? {});
    return `attention of ${called(run, component(site))} set${queries.length === 1 ? ` at ${positionName(run, Number(queries[0]))}` : ""}`;
  }
  if (site.neuron !== undefined) return `L${site.layer} ${site.kind === "feature" ? "feature" : "neuron"} ${site.neuron}${at}: ${how}`;
  if (site.kind === "error") return `L${site.layer} error of the dictionary${at}: ${how}`;
  const part = READS[site.kind] ? `${READS[site.kind]} of ${theCalled(run, component(site))}` : called(run, component(site));
  const name = site.kind.startsWith("resid") ? `residual stream, L${site.layer} ${site.kind.slice(6)}` : part;
  return `${name}${at}: ${how}`;
}
