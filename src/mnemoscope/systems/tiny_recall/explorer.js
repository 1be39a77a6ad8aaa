/** Permutation lookup in the live explorer: what the task allows, and its exact predictors, for any sequence. */
/** @type {ExplorerScript<{n_values: number}>} */ ((task) => {
  const n = task.n_values;

  /** What is known before the y of every slot: the y of an earlier x that was the same, if any, and all y so far. */
  const slots = (/** @type {number[]} */ tokens) => {
    /** @type {Map<number, number>} */
    const seen = new Map();
    return tokens.flatMap((x, pos) => {
      if (pos % 2) return [];
      const known = { pos, y: seen.get(x), used: [...seen.values()] };
      if (pos + 1 < tokens.length) seen.set(x, tokens[pos + 1]);
      return [known];
    });
  };

  const every = Array.from({ length: n }, (_, i) => i + 1);
  const uniform = (/** @type {number[]} */ values) => Array.from({ length: n + 1 }, (_, y) => (values.includes(y) ? 1 / values.length : 0));
  const unused = (/** @type {number[]} */ used) => uniform(every.filter((y) => !used.includes(y)));
  const rows = (/** @type {number[]} */ tokens, /** @type {(y: number|undefined, used: number[]) => number[]} */ row) =>
    new Map(slots(tokens).map(({ pos, y, used }) => [pos, row(y, used)]));

  return {
    complaint(tokens) {
      const pairs = new Map();
      for (let pos = 0; pos < tokens.length; pos += 2) {
        const [x, y] = [tokens[pos], tokens[pos + 1]];
        const slot = pos / 2 + 1;
        if (x < 1 || y < 1) return `slot ${slot}: 0 is never used`;
        if (y === undefined) return null;
        if (pairs.has(x)) return `slot ${slot} repeats x = ${x}; only the last x may repeat an earlier one`;
        if ([...pairs.values()].includes(y)) return `slot ${slot}: y = ${y} is taken; no two x share a y`;
        pairs.set(x, y);
      }
      return null;
    },
    references: {
      bayes: (tokens) => rows(tokens, (y, used) => (y === undefined ? unused(used) : uniform([y]))),
      elimination: (tokens) => rows(tokens, (_, used) => unused(used)),
      recall: (tokens) => rows(tokens, (y) => uniform(y === undefined ? every : [y])),
    },
  };
});
