// The list of conversations: by day, searched by the service, longer on demand.

import { button, el, icon, iconButton, refill } from "./dom.js";
import { api } from "./api.js";
import { ago, dateOf, many, oneLine, plain, shown } from "./text.js";

const STATES = {
  running: ["started", "running"],
  waiting: ["awaiting", "needs approval"],
  interrupted: ["warning", "interrupted"],
};
const SEARCH_MS = 200;

const DAYS = [
  ["Today", 0],
  ["Yesterday", 1],
  ["This week", 6],
  ["Earlier", Infinity],
];

export class SessionList {
  /** `does` has rename(session), remove(session) and failed(error). */
  constructor(place, status, search, does) {
    this.place = place;
    this.status = status;
    this.search = search;
    this.does = does;
    this.sessions = [];
    this.waiting = new Set();
    this.current = null;
    this.asked = 0;
    search.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.load(), SEARCH_MS);
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") this.step(1, event);
    });
    place.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") this.step(event.key === "ArrowDown" ? 1 : -1, event);
    });
  }

  async load(more = false) {
    const ticket = (this.asked += 1);
    try {
      const found = await api.sessions(this.search.value.trim(), more ? this.next : null);
      if (ticket !== this.asked) return;
      this.sessions = more ? [...this.sessions, ...found.sessions] : found.sessions;
      this.next = found.next;
      // A run that goes on may wait for somebody: the list does not say, the approvals do.
      const isAny = this.sessions.some((session) => session.running);
      const asked = isAny ? (await api.approvals()).approvals : [];
      if (ticket !== this.asked) return;
      this.waiting = new Set(asked.map(({ session }) => session));
      // A list that says the same as before is left alone: somebody may be at it. Times in it are told by the minute.
      const state = JSON.stringify([this.sessions, [...this.waiting], this.next, this.search.value, Math.floor(Date.now() / 60_000)]);
      if (state !== this.drawn) this.draw();
      this.drawn = state;
    } catch (error) {
      if (ticket === this.asked) this.does.failed(error);
    }
  }

  mark(id) {
    this.current = id;
    for (const link of this.place.querySelectorAll("a")) {
      if (link.dataset.id === id) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  draw() {
    const focused = document.activeElement?.dataset?.id;
    const today = new Date().setHours(0, 0, 0, 0);
    const groups = new Map();
    for (const session of this.sessions) {
      const days = Math.ceil((today - dateOf(session.updated).getTime()) / 86400000);
      const [words] = DAYS.find(([, most]) => days <= most) || DAYS.at(-1);
      if (!groups.has(words)) groups.set(words, []);
      groups.get(words).push(session);
    }
    refill(
      this.place,
      [...groups].map(([words, sessions]) => [el("h2", {}, words), el("ul", {}, sessions.map((session) => this.item(session)))]),
      this.next && button("Show more", { class: "link more", onclick: () => this.load(true) }),
    );
    if (focused) this.place.querySelector(`a[data-id="${CSS.escape(focused)}"]`)?.focus();
    const asked = this.search.value.trim();
    this.status.textContent = this.sessions.length ? (asked ? `${many(this.sessions.length, "conversation")} found` : "") : asked ? "Nothing found." : "No conversations yet.";
  }

  item(session) {
    const state = STATES[this.waiting.has(session.id) ? "waiting" : session.running ? "running" : session.state];
    const title = oneLine(session.title || "", 80) || "Untitled";
    return el(
      "li",
      {},
      el(
        "a",
        { href: `#${encodeURIComponent(session.id)}`, "data-id": session.id, "aria-current": session.id === this.current ? "page" : null },
        el("span", { class: "name" }, shown(title)),
        el(
          "span",
          { class: "quiet" },
          state && el("span", { class: "state", "data-state": state[0] }, icon(state[0]), el("span", {}, state[1])),
          [ago(session.updated), many(session.exchange_count || 0, "exchange")].filter(Boolean).join(" · "),
        ),
      ),
      el(
        "span",
        { class: "deeds" },
        iconButton(`Rename ${plain(title)}`, "edit", { class: "bare rename", onclick: () => this.does.rename(session) }),
        iconButton(`Delete ${plain(title)}`, "trash", { class: "bare remove", onclick: () => this.does.remove(session) }),
      ),
    );
  }

  step(by, event) {
    const links = [...this.place.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    event.preventDefault();
    if (at + by < 0) this.search.focus();
    else links[Math.min(links.length - 1, at + by)]?.focus();
  }
}
