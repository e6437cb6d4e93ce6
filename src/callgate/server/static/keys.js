// One key, one deed: as long as no field has the focus, and only if the person wants it so.

import { settings } from "./settings.js";

const isField = (node) => node?.closest?.("input, textarea, select, [contenteditable]");

/** Listens for the keys of a table `{key: function(event)}`; a deed that gives false leaves the key to the browser. */
export function listen(table) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    if (event.key === "Escape") {
      table.Escape?.(event);
      return;
    }
    if (!settings.keys || isField(event.target) || document.querySelector("dialog[open]")) return;
    const deed = table[event.key];
    if (deed && deed(event) !== false) event.preventDefault();
  });
}
