/** Named mechanisms: the keys that a query attends to evenly, among those up to it, as in `ms.core.patterns`. */

/** With a `period` tokens count only where they are at the query's place of a slot of that length. */
const MECHANISMS = /** @type {Object<string, (tokens: number[], query: number, key: number, period: number) => boolean>} */ ({
  uniform: () => true,
  itself: (_, query, key) => key === query,
  "first token": (_, query, key) => key === 0,
  "previous token": (_, query, key) => key === query - 1,
  "same token, earlier": (tokens, query, key, period) => key < query && tokens[key] === tokens[query] && (query - key) % period === 0,
  "after the same token": (tokens, query, key, period) => key > 0 && tokens[key - 1] === tokens[query] && (query - key + 1) % period === 0,
});

export const MECHANISM_NAMES = Object.keys(MECHANISMS);

/**
 * The rows of attention that a mechanism gives; a query that has no such key is left out, its row stays as it is.
 *
 * @returns {Object<number, number[]>}
 */
export function mechanismRows(/** @type {string} */ name, /** @type {number[]} */ tokens, period = 1) {
  /** @type {Object<number, number[]>} */
  const rows = {};
  tokens.forEach((_, query) => {
    const keys = tokens.map((_token, key) => key <= query && MECHANISMS[name](tokens, query, key, period));
    const n = keys.filter(Boolean).length;
    if (n) rows[query] = keys.map((is) => (is ? 1 / n : 0));
  });
  return rows;
}
