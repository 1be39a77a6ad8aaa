(() => {
  "use strict";
  const filter = /** @type {?HTMLInputElement} */ (document.getElementById("filter"));
  const every = /** @type {HTMLInputElement} */ (document.getElementById("every"));
  const count = /** @type {HTMLOutputElement} */ (document.getElementById("count"));
  if (!filter) return;
  const groups = /** @type {HTMLTableSectionElement[]} */ ([...document.querySelectorAll("table.runs > tbody")]);
  const files = /** @type {HTMLTableRowElement[]} */ ([...document.querySelectorAll("table.files > tbody > tr")]);
  const runs = groups.flatMap((group) => [...group.rows].filter((row) => row.className === "of-one"));
  const opened = new Set();

  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (/** @type {string} */ text) => words.every((/** @type {string} */ word) => text.includes(word));
    let n = 0;
    for (const group of groups) {
      const seeds = [...group.rows].filter((row) => row.className === "of-one");
      const hits = seeds.filter((row) => has(`${group.dataset.text} ${row.dataset.text} `));
      const open = every.checked || opened.has(group) || hits.length < seeds.length || seeds.length === 1;
      for (const row of seeds) row.hidden = !open || !hits.includes(row);
      group.hidden = hits.length === 0;
      const button = group.querySelector("button.open");
      if (button) button.setAttribute("aria-expanded", String(open));
      n += hits.length;
    }
    for (const row of files) row.hidden = !has((row.textContent ?? "").toLowerCase());
    count.value = runs.length ? `${n} of ${runs.length} runs` : "";
  };

  const value = (/** @type {HTMLTableRowElement} */ row, /** @type {number} */ column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? (cell.textContent ?? "").trim();
    return text === "" || text === "–" ? null : cell.dataset.value === undefined ? text : Number(text);
  };
  /** @returns {(one: HTMLTableRowElement, other: HTMLTableRowElement) => number} */
  const compare = (/** @type {number} */ column, /** @type {number} */ sign) => (one, other) => {
    const [a, b] = [value(one, column), value(other, column)];
    if (a === null || b === null) return Number(a === null) - Number(b === null); // what is missing comes last
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  const sort = (/** @type {HTMLTableCellElement} */ head) => {
    const table = /** @type {HTMLTableElement} */ (head.closest("table"));
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const order = compare(head.cellIndex, up ? 1 : -1);
    for (const body of table.tBodies) {
      const rows = [...body.rows];
      const first = rows[0]?.className === "of-all" ? rows.splice(0, 1) : [];
      body.append(...first, ...rows.sort(order));
    }
    if (table.className === "runs") table.append(...[...table.tBodies].sort((a, b) => order(a.rows[0], b.rows[0])));
  };

  document.addEventListener("click", (event) => {
    const button = /** @type {Element} */ (event.target).closest("th button, button.open");
    if (!button) return;
    if (button.className !== "open") {
      sort(/** @type {HTMLTableCellElement} */ (button.closest("th")));
      return;
    }
    const group = button.closest("tbody");
    if (!opened.delete(group)) opened.add(group);
    show();
  });
  filter.addEventListener("input", show);
  every.addEventListener("change", show);
  show();
})();
