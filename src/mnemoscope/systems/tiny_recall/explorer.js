/**
 * Permutation lookup in the live explorer: what the task allows, and its exact predictors, for any sequence.
 *
 * @param {{n_values: number, shuffle_x: boolean}} task
 */
(task) => {
  const n = task.n_values;

  /** What is known before the y of the last x, or before the y of every slot. */
  const slots = (tokens) => {
    const seen = new Map();
    return tokens.flatMap((x, pos) => {
      if (pos % 2) return [];
      const known = { pos, x, seen: new Map(seen) };
      if (pos + 1 < tokens.length) seen.set(x, tokens[pos + 1]);
      return [known];
    });
  };

  const uniform = (values) => Array.from({ length: n + 1 }, (_, y) => (values.includes(y) ? 1 / values.length : 0));
  const every = Array.from({ length: n }, (_, i) => i + 1);
  const unused = (seen) => every.filter((y) => ![...seen.values()].includes(y));
  const rows = (tokens, row) => new Map(slots(tokens).map(({ pos, x, seen }) => [pos, row(x, seen)]));

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
      bayes: (tokens) => rows(tokens, (x, seen) => uniform(seen.has(x) ? [seen.get(x)] : unused(seen))),
      elimination: (tokens) => rows(tokens, (x, seen) => uniform(unused(seen))),
      recall: (tokens) => rows(tokens, (x, seen) => uniform(seen.has(x) ? [seen.get(x)] : every)),
    },
  };
};
