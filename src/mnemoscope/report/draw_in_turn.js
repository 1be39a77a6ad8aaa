/** @type {(() => void)[]} */
const waiting = [];
/**
 * Draw when the page has loaded what stands before.
 * @param {Record<string, (...what: unknown[]) => void>} library
 * @param {string} draw the name of the function that draws
 * @param {...unknown} what its arguments
 */
const later = (library, draw, ...what) => waiting.push(() => library[draw](...what));
const drawOne = () => waiting.shift()?.();
const drawNext = () => { if (waiting.length) { drawOne(); setTimeout(drawNext); } };
const drawAll = () => { while (waiting.length) drawOne(); };
addEventListener("load", drawNext);
addEventListener("beforeprint", drawAll);
