/** Parts of an induction circuit at their ideal form, in the live explorer: as `ideal_parts.py` has them. */
/** @type {IdealScript<{}>} */ ((_task, { d_vocab_out: nLabels }) => {
  const [LABELS, QUERY, SHARPNESS, FLOOR] = [[1, 3], 4, 8, 1e-6];

  /** The same row of attention from every place; only that from the query is used. */
  const everywhere = (/** @type {number[]} */ row) => Float32Array.from({ length: row.length ** 2 }, (_, i) => row[i % row.length]);

  return {
    "perfect-layer-1": (tokens, stream) => {
      const d = stream.length / tokens.length;
      return stream.map((_, i) => stream.at(i - d) ?? 0);
    },
    "perfect-match": (tokens) => everywhere(tokens.map((_, key) => (LABELS.includes(key) && tokens[key - 1] === tokens[QUERY] ? 1 : 0))),
    "perfect-key": (tokens, stream, written) => {
      const d = stream.length / tokens.length;
      const row = (/** @type {Float32Array} */ rows, /** @type {number} */ pos) => Array.from(rows.subarray(pos * d, (pos + 1) * d));
      const dot = (/** @type {number[]} */ a, /** @type {number[]} */ b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
      const size = (/** @type {number[]} */ a) => Math.max(Math.sqrt(dot(a, a)), 1e-12);
      const asked = row(stream, QUERY);
      const weights = tokens.map((_, key) => {
        const own = row(written, key);
        return Math.exp((SHARPNESS * dot(asked, own)) / size(asked) / size(own));
      });
      const total = weights.reduce((sum, weight) => sum + weight, 0);
      return everywhere(weights.map((weight) => weight / total));
    },
    "perfect-copy": (tokens, pattern) => {
      const n = tokens.length;
      const result = new Float32Array(n * nLabels).fill(FLOOR);
      for (let i = 0; i < n * n; i++) if (tokens[i % n] < nLabels) result[Math.floor(i / n) * nLabels + tokens[i % n]] += pattern[i];
      return result.map(Math.log);
    },
  };
});
