/** Most tokens that CircuitsVis draws: its time grows with the cells of a pattern, to a minute for 128 tokens. */
const LONGEST = 64;
const THUMBNAIL = 64;

/**
 * The weight that a head gives a key at a query.
 * @typedef {(head: number, query: number, key: number) => number} Weight
 */

/**
 * Show attention patterns that `attention_page.py` packed: weights in units of 1 / scale, compressed.
 * @param {string} place the id of the element to fill
 * @param {{tokens: string[], attentionHeadNames: string[]}} properties what CircuitsVis takes besides the weights
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
  const cells = causal ? (n * (n + 1)) / 2 : n * n;
  /** @type {Weight} */
  const weight = (head, query, key) => {
    if (causal && key > query) return 0;
    return values[head * cells + (causal ? (query * (query + 1)) / 2 : query * n) + key] / scale;
  };
  if (n > LONGEST) {
    showLong(/** @type {HTMLElement} */ (document.getElementById(place)), properties, weight, causal);
    return;
  }
  const numbers = (/** @type {number} */ count) => Array.from({ length: count }, (_, i) => i);
  const attention = numbers(heads).map((head) => numbers(n).map((query) => numbers(n).map((key) => weight(head, query, key))));
  CircuitsVis.render(place, CircuitsVis.AttentionHeads, { ...properties, attention });
}

/**
 * Heads on a long sequence: a small picture of each, and the chosen one with a pixel for every query and key.
 * @param {HTMLElement} element
 * @param {{tokens: string[], attentionHeadNames: string[]}} properties
 * @param {Weight} weight
 * @param {boolean} causal
 */
function showLong(element, { tokens, attentionHeadNames: names }, weight, causal) {
  const title = document.createElement("h3");
  const large = document.createElement("canvas");
  const under = document.createElement("p");
  const buttons = names.map((name, head) => {
    const button = document.createElement("button");
    const label = document.createElement("span");
    const small = document.createElement("canvas");
    label.textContent = name;
    paint(small, Math.min(THUMBNAIL, tokens.length), tokens.length, (query, key) => weight(head, query, key), causal);
    button.append(small, label);
    button.addEventListener("click", () => choose(head));
    return button;
  });
  let chosen = 0;
  const choose = (/** @type {number} */ head) => {
    chosen = head;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === head)));
    title.textContent = names[head];
    paint(large, tokens.length, tokens.length, (query, key) => weight(head, query, key), causal);
    under.textContent = "Rows are queries, columns keys; point at a cell to read it.";
  };
  large.className = "large";
  large.addEventListener("mousemove", ({ offsetX, offsetY }) => {
    const at = (/** @type {number} */ offset, /** @type {number} */ size) =>
      Math.min(tokens.length - 1, Math.max(0, Math.floor((offset / size) * tokens.length)));
    const [query, key] = [at(offsetY, large.clientHeight), at(offsetX, large.clientWidth)];
    const named = (/** @type {number} */ pos) => `<code>${tokens[pos]}</code> (${pos})`; // tokens are escaped
    under.innerHTML = `from ${named(query)} to ${named(key)}: ${weight(chosen, query, key).toFixed(3)}`;
  });
  const heads = document.createElement("div");
  heads.className = "heads";
  heads.append(...buttons);
  element.append(heads, title, large, under);
  choose(0);
}

/**
 * Paint a pattern on some pixels, each with the largest weight of its cells; grey where no key can be.
 * @param {HTMLCanvasElement} canvas
 * @param {number} size pixels along each side
 * @param {number} n tokens
 * @param {(query: number, key: number) => number} weight
 * @param {boolean} causal
 */
function paint(canvas, size, n, weight, causal) {
  canvas.width = canvas.height = size;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const largest = new Float32Array(size * size);
  const pixel = Array.from({ length: n }, (_, pos) => Math.floor((pos * size) / n));
  for (let query = 0; query < n; query++) {
    const end = causal ? query + 1 : n;
    for (let key = 0; key < end; key++) {
      const at = pixel[query] * size + pixel[key];
      largest[at] = Math.max(largest[at], weight(query, key));
    }
  }
  const image = context.createImageData(size, size);
  largest.forEach((value, at) => {
    const ahead = causal && at % size > Math.floor(at / size);
    const shade = ahead ? 200 : 255 * (1 - Math.min(1, value));
    image.data.set([shade, shade, ahead ? 200 : 255, 255], 4 * at);
  });
  context.putImageData(image, 0, 0);
}
