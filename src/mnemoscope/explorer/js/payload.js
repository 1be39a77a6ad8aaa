/** What the page holds, refused where it is not as it was written. */

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

/** The CRC-32 of a text of ASCII, as zlib has it. */
export function checksum(/** @type {string} */ text) {
  let sum = ~0;
  for (let i = 0; i < text.length; i++) sum = CRC[(sum ^ text.charCodeAt(i)) & 255] ^ (sum >>> 8);
  return ~sum >>> 0;
}

/** The JSON of a script element; its `data-check` is the CRC-32 of the text. */
export function payload(/** @type {?HTMLElement} */ element) {
  const text = element?.textContent ?? "";
  if (checksum(text) !== Number(element?.dataset.check)) {
    throw new Error("This page is damaged: what it holds is not what was written. Write it anew with `mnemoscope explore`.");
  }
  return JSON.parse(text);
}
