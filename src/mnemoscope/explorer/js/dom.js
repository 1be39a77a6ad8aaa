/** Elements with their attributes and listeners; texts are texts, never markup. */

/** Columns of a table of buttons from which on they are narrow. */
export const MANY = 12;
const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {Element} node
 * @param {Object<string, any>} attributes   `onclick` and the like are listeners; undefined, null and false are left out.
 */
function dress(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
}

/** @returns {HTMLElement} */
export function el(/** @type {string} */ tag, attributes = {}, /** @type {(Node|string)[]} */ ...children) {
  const node = document.createElement(tag);
  dress(node, attributes);
  node.append(...children);
  return node;
}

/** @returns {SVGElement} */
export function svg(/** @type {string} */ tag, attributes = {}, /** @type {(Node|string)[]} */ ...children) {
  const node = document.createElementNS(SVG, tag);
  dress(node, attributes);
  node.append(...children);
  return /** @type {SVGElement} */ (node);
}

/** A list to choose from. */
export function chooser(
  /** @type {string} */ label,
  /** @type {[string, string][]} */ options,
  /** @type {string} */ chosen,
  /** @type {(value: string) => void} */ choose,
) {
  const list = el("select", { onchange: (/** @type {any} */ event) => choose(event.target.value) });
  for (const [value, text] of options) list.append(el("option", { value, selected: value === chosen }, text));
  return el("label", { class: "choose" }, `${label} `, list);
}

/**
 * Fill a place anew, only where what it is made of has changed: lists to choose from take long to lay out.
 *
 * What had the focus has it afterwards, by its place among the controls.
 */
export function refill(/** @type {HTMLElement} */ place, /** @type {any} */ made_of, /** @type {() => (Node|string)[]} */ make) {
  const text = JSON.stringify(made_of);
  if (place.dataset.of === text) return;
  const controls = () => /** @type {HTMLElement[]} */ ([...place.querySelectorAll("select, button")]);
  const focused = controls().indexOf(/** @type {HTMLElement} */ (document.activeElement));
  place.dataset.of = text;
  place.replaceChildren(...make());
  controls()[focused]?.focus();
}

/** A number with few digits, with its sign if asked for. */
export function short(/** @type {number} */ value, digits = 2, signed = false) {
  const text = Math.abs(value).toFixed(digits).replace(/^0\./, ".");
  const sign = value < 0 && Number(value.toFixed(digits)) !== 0 ? "−" : signed ? "+" : "";
  return sign + text;
}

/** @type {Map<string, number[]>} */
const COLOURS = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => COLOURS.clear());

/** A colour of the page as three numbers, for canvases; asking the style for it takes longer than drawing. */
export function rgb(/** @type {string} */ name) {
  const style = () => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
  if (!COLOURS.has(name)) COLOURS.set(name, style().split(",").map(Number));
  return /** @type {number[]} */ (COLOURS.get(name));
}
