/** @type {{place: string, draw: () => void}[]} */
const waiting = [];
/**
 * Draw when the page has loaded what stands before, and what is folded when it is opened: it has no width before.
 * @param {Record<string, (place: string, ...what: unknown[]) => void>} library
 * @param {string} draw the name of the function that draws
 * @param {string} place the id of the element to fill
 * @param {...unknown} what its further arguments
 */
const later = (library, draw, place, ...what) => waiting.push({ place, draw: () => library[draw](place, ...what) });
const folded = (/** @type {string} */ place) => document.getElementById(place)?.closest("details:not([open])");
const drawOne = () => {
  const next = waiting.findIndex(({ place }) => !folded(place));
  if (next >= 0) waiting.splice(next, 1)[0].draw();
  return next >= 0;
};
const drawNext = () => { if (drawOne()) setTimeout(drawNext); };
const drawAll = () => { while (drawOne()) continue; };
addEventListener("load", drawNext);
addEventListener("toggle", drawNext, true);
addEventListener("beforeprint", drawAll);
