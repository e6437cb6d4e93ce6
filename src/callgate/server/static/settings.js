// What a person chose on this page: kept in this browser, and nothing else is. The token is not among it.

import { el, icon, refill } from "./dom.js";

const KEPT = "callgate.settings";
const OTHER = " other"; // no model is called so
const THEMES = { auto: ["auto", "System theme"], light: ["sun", "Light"], dark: ["moon", "Dark"] };

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) || {};
  } catch {
    return {};
  }
}

function keep(change) {
  try {
    localStorage.setItem(KEPT, JSON.stringify({ ...read(), ...change }));
  } catch {
    // A browser that keeps nothing still shows the page.
  }
}

export const settings = {
  get theme() {
    return THEMES[read().theme] ? read().theme : "auto";
  },
  set theme(value) {
    keep({ theme: value });
  },
  get keys() {
    return read().keys !== false;
  },
  set keys(value) {
    keep({ keys: value });
  },
  get panel() {
    return read().panel !== false;
  },
  set panel(value) {
    keep({ panel: value });
  },
  get choice() {
    return read().choice || {};
  },
  set choice(value) {
    keep({ choice: value });
  },
  get notify() {
    return read().notify === true;
  },
  set notify(value) {
    keep({ notify: value });
  },
  get params() {
    return read().params || {};
  },
  set params(value) {
    keep({ params: value });
  },
};

const BRANCHES_MAX = 200;

/** Which conversation was branched from which: `{id: {from, title, fromTitle}}`. */
export const branches = {
  get all() {
    return read().branches || {};
  },
  add(id, origin) {
    keep({ branches: Object.fromEntries([...Object.entries(this.all), [id, origin]].slice(-BRANCHES_MAX)) });
  },
};

const MARKED_MAX = 500;

/** Conversations that were pinned or archived in this browser. */
export const marks = {
  all(mark) {
    return Object.entries(read().marks || {})
      .filter(([, each]) => each === mark)
      .map(([id]) => id);
  },
  of(id) {
    return (read().marks || {})[id] ?? null;
  },
  put(id, mark) {
    const { [id]: _, ...others } = read().marks || {};
    keep({ marks: Object.fromEntries([...Object.entries(others), ...(mark ? [[id, mark]] : [])].slice(-MARKED_MAX)) });
    return null;
  },
};

/** Puts the theme on the page and on its button. */
export function drawTheme(button) {
  const [picture, words] = THEMES[settings.theme];
  document.documentElement.dataset.theme = settings.theme;
  refill(button, icon(picture));
  button.setAttribute("aria-label", `Theme: ${words}`);
  button.title = `Theme: ${words}`;
}

/** The next theme in the round. */
export function nextTheme(button) {
  const names = Object.keys(THEMES);
  settings.theme = names[(names.indexOf(settings.theme) + 1) % names.length];
  drawTheme(button);
}

/** Provider and model: selects that know what the service offers. */
export class Choice {
  /** `askName` asks a person for the name of a model that is not in the list. */
  constructor(provider, model, askName) {
    Object.assign(this, { provider, model, providers: [] });
    provider.addEventListener("change", () => {
      this.drawModels();
      this.keep();
    });
    model.addEventListener("change", async () => {
      if (model.value === OTHER) this.drawModels(await askName());
      this.keep();
    });
  }

  offer({ providers = [], default: first = {} }) {
    // The service's own model may be none of those that can be named: it is used by naming nobody.
    const isNamed = providers.some((each) => each.name === first.provider);
    providers = isNamed || !first.provider ? providers : [{ name: first.provider, models: [first.model], default: first.model }, ...providers];
    this.providers = providers;
    const kept = settings.choice;
    refill(
      this.provider,
      providers.map((each) => el("option", { value: each.name, disabled: each.available === false, title: each.why || null }, each.available === false ? `${each.name} (not set up)` : each.name)),
    );
    const usable = providers.filter((each) => each.available !== false).map((each) => each.name);
    this.provider.value = usable.includes(kept.provider) ? kept.provider : usable.includes(first.provider) ? first.provider : (usable[0] ?? "");
    this.first = first;
    this.drawModels(this.provider.value === kept.provider ? kept.model : "");
  }

  drawModels(wanted = "") {
    const found = this.providers.find((each) => each.name === this.provider.value) || {};
    const names = (found.models || []).map((each) => (typeof each === "string" ? each : each.name));
    const first = this.first?.provider === found.name && this.first?.model ? this.first.model : found.default;
    for (const name of [wanted, first]) if (name && !names.includes(name)) names.unshift(name);
    if (!names.length) names.push("");
    refill(this.model, names.map((name) => el("option", { value: name }, name || "default model")), el("option", { value: OTHER }, "another…"));
    this.model.value = wanted || first || names[0];
  }

  keep() {
    settings.choice = { provider: this.provider.value, model: this.model.value };
  }

  /** What a request names of it: nothing that is the service's own choice. */
  get value() {
    const { first = {} } = this;
    if (this.provider.value === first.provider && this.model.value === first.model) return {};
    const named = { provider: this.provider.value, model: this.model.value };
    return Object.fromEntries(Object.entries(named).filter(([, value]) => value));
  }
}
