/** Work that is done a few milliseconds at a time, so that the page stays at hand. */

const PIECE = 8;

/**
 * Do the work piece by piece, as long as it is wanted: a new state of the page starts anew.
 *
 * @param {Generator<void, void>} work
 * @param {() => boolean} wanted
 */
export function inPieces(work, wanted) {
  setTimeout(() => {
    if (!wanted()) return;
    const start = performance.now();
    while (performance.now() - start < PIECE) if (work.next().done) return;
    inPieces(work, wanted);
  });
}

/**
 * All pieces at once.
 *
 * @template T
 * @param {Generator<void, T>} work
 * @returns {T}
 */
export function atOnce(work) {
  let step = work.next();
  while (!step.done) step = work.next();
  return step.value;
}
