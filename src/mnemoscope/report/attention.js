/**
 * Show attention patterns that `attention_page.py` packed: weights in units of 1 / scale, compressed.
 * @param {string} place the id of the element to fill
 * @param {{tokens: string[]}} properties what CircuitsVis takes besides the weights
 * @param {string} packed the weights, gzip in base64, head by head and query by query
 * @param {number} heads how many heads there are
 * @param {boolean} causal whether keys after the query are left out
 * @param {number} scale
 */
async function showAttention(place, properties, packed, heads, causal, scale) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const values = new Uint16Array(await new Response(stream).arrayBuffer());
  const n = properties.tokens.length;
  let at = 0;
  /** @param {number} query */
  const row = (query) => {
    const end = causal ? query + 1 : n;
    return Array.from({ length: n }, (_, key) => (key < end ? values[at++] / scale : 0));
  };
  const attention = Array.from({ length: heads }, () => Array.from({ length: n }, (_, query) => row(query)));
  CircuitsVis.render(place, CircuitsVis.AttentionHeads, { ...properties, attention });
}
