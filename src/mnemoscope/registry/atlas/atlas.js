(() => {
  "use strict";
  const form = /** @type {?HTMLFormElement} */ (document.querySelector("form.filters"));
  const selects = /** @type {HTMLSelectElement[]} */ ([...(form?.querySelectorAll("select") ?? [])]);
  const search = /** @type {?HTMLInputElement} */ (form?.querySelector("input[type=search]") ?? null);
  const count = /** @type {?HTMLOutputElement} */ (form?.querySelector("output") ?? null);
  const claims = /** @type {HTMLTableSectionElement[]} */ ([...document.querySelectorAll("table.claims > tbody")]);

  /** Show the claims that every filter lets through, and keep the choice in the address. */
  const show = () => {
    if (!form || !search || !count) return;
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = selects.filter((select) => select.value);
    let n = 0;
    for (const claim of claims) {
      const text = (claim.textContent ?? "").toLowerCase();
      claim.hidden = !(words.every((word) => text.includes(word))
        && chosen.every(({ name, value }) => (claim.dataset[name] ?? "").split("\n").includes(value)));
      if (!claim.hidden) n += 1;
    }
    count.value = `${n} of ${claims.length} claims`;
    const choice = new URLSearchParams(chosen.map(({ name, value }) => [name, value]));
    if (search.value.trim()) choice.set("words", search.value.trim());
    history.replaceState(null, "", choice.size ? `#${choice}` : location.pathname);
  };

  /** Take the filters from the address. */
  const read = () => {
    if (!form || !search) return;
    const choice = new URLSearchParams(location.hash.slice(1));
    for (const select of selects) {
      const value = choice.get(select.name) ?? "";
      select.value = [...select.options].some((option) => option.value === value) ? value : "";
    }
    search.value = choice.get("words") ?? "";
    show();
  };

  if (form) {
    form.hidden = false;
    form.addEventListener("input", show);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(show)); // the fields are emptied after the event
    addEventListener("hashchange", read);
    read();
  }

  /** Select a text and copy it; a page from a file may have no clipboard of its own. */
  const copy = async (/** @type {HTMLElement} */ text) => {
    getSelection()?.selectAllChildren(text);
    try {
      await navigator.clipboard.writeText(text.textContent ?? "");
      return true;
    } catch {
      return document.execCommand("copy");
    }
  };
  for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("button.copy"))) {
    const text = /** @type {?HTMLElement} */ (button.previousElementSibling);
    if (!text) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      button.textContent = (await copy(text)) ? "Copied" : "Selected: copy it with the keyboard";
    });
  }
})();
