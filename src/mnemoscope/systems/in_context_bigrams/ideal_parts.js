/** A perfect W_O^2 in the live explorer: the logarithm of the attention in layer 1 to every token, as in `tasks.py`. */
/** @type {IdealScript<{}>} */ ((_task, { d_vocab_out: nTokens }) => ({
  "perfect-output": (tokens, pattern) => {
    const n = tokens.length;
    const result = new Float32Array(n * nTokens).fill(1e-6);
    for (let i = 0; i < n * n; i++) result[Math.floor(i / n) * nTokens + tokens[i % n]] += pattern[i];
    return result.map(Math.log);
  },
}));
