/** Exact predictors of a task: computed where it has a script for the page, else looked up for the page's sequences. */
import { row } from "./reading.js";
import { unpack } from "./weights.js";

/**
 * @param {any} run
 * @param {import("./weights.js").Packed[]} tensors
 * @param {?ExplorerGuest} guest
 */
export function predictors(run, tensors, guest) {
  const same = (/** @type {number[]} */ a, /** @type {number[]} */ b) => a.length === b.length && a.every((x, i) => x === b[i]);
  /** @type {?import("./weights.js").Tensor} */
  let table = null;
  const exact = () => (table ??= unpack(tensors[run.exact]));
  const shipped = run.examples.flatMap((/** @type {any} */ one) => [one, ...Object.values(one.pairs)]);
  return {
    names: guest ? Object.keys(guest.references) : run.references,

    /** Why the task has no such sequence; null if nothing speaks against it. */
    complaint(/** @type {number[]} */ tokens) {
      const foreign = tokens.find((token) => !run.alphabet.includes(token));
      if (foreign !== undefined) return `${run.symbols[foreign]} occurs in none of the ${run.task ? "task's " : ""}${run.reference.length} sequences here`;
      return guest?.complaint(tokens) ?? null;
    },

    /** @returns {?ExactRows} null: not known for this sequence. */
    rows(/** @type {string} */ name, /** @type {number[]} */ tokens) {
      if (guest) return guest.complaint(tokens) ? null : guest.references[name](tokens);
      const found = shipped.find((/** @type {any} */ one) => same(one.tokens, tokens));
      const numbers = found?.rows[name];
      if (!numbers) return null;
      return new Map(found.places.map((/** @type {number} */ pos, /** @type {number} */ i) => [pos, row(exact(), numbers[i])]));
    },
  };
}
