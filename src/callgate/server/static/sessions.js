// The list of conversations: by day, searched by the service, longer on demand.

import { button, el, icon, iconButton, refill } from "./dom.js";
import { api } from "./api.js";
import { branches, marks } from "./settings.js";
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

const BRANCH = / \(branch( \d+)?\)$/; // a picture says it where titles are cut

const MARKED = { pinned: "Pinned", archived: "Archived" };

export class SessionList {
  /** `does` has rename(session), remove(session) and failed(error). */
  constructor(place, status, search, does) {
    this.place = place;
    this.status = status;
    this.search = search;
    this.does = does;
    this.sessions = [];
    this.pinned = [];
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
      await this.loadPinned();
      if (ticket !== this.asked) return;
      // A run that goes on may wait for somebody: the list does not say, the approvals do.
      const isAny = this.sessions.some((session) => session.running);
      const asked = isAny ? (await api.approvals()).approvals : [];
      if (ticket !== this.asked) return;
      this.waiting = new Set(asked.map(({ session }) => session));
      // A list that says the same as before is left alone: somebody may be at it. Times in it are told by the minute.
      const state = JSON.stringify([this.sessions, this.pinned, [...this.waiting], this.next, this.search.value, Math.floor(Date.now() / 60_000)]);
      if (state !== this.drawn) this.draw();
      this.drawn = state;
    } catch (error) {
      if (ticket === this.asked) this.does.failed(error);
    }
  }

  /** Pinned conversations stand at the top however old they are; those that are gone are forgotten. */
  async loadPinned() {
    if (this.search.value.trim()) {
      this.pinned = [];
      return;
    }
    const known = new Map([...this.pinned, ...this.sessions].map((session) => [session.id, session]));
    const missing = marks.all("pinned").filter((id) => !known.has(id));
    for (const id of missing) {
      const session = await api.session(id).catch((error) => (error.status === 404 ? marks.put(id, null) : null));
      if (session) known.set(id, { ...session, running: Boolean(session.run) });
    }
    this.pinned = marks.all("pinned").map((id) => known.get(id)).filter(Boolean);
  }

  /** Pins or archives a conversation, or takes that back. */
  put(session, mark) {
    marks.put(session.id, marks.of(session.id) === mark ? null : mark);
    this.pinned = this.pinned.filter(({ id }) => id !== session.id);
    this.drawn = "";
    this.load();
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
    const all = new Map([...this.pinned, ...this.sessions].map((session) => [session.id, session]));
    for (const session of all.values()) {
      const days = Math.ceil((today - dateOf(session.updated).getTime()) / 86400000);
      const [day] = DAYS.find(([, most]) => days <= most) || DAYS.at(-1);
      const words = MARKED[marks.of(session.id)] ?? day;
      if (!groups.has(words)) groups.set(words, []);
      groups.get(words).push(session);
    }
    // What is searched for is shown wherever it is; otherwise the archive stays closed until somebody opens it.
    const archived = this.search.value.trim() ? [] : (groups.get(MARKED.archived) ?? []);
    const order = [MARKED.pinned, ...DAYS.map(([words]) => words), ...(archived.length ? [] : [MARKED.archived])];
    const wasOpen = this.place.querySelector("details")?.open;
    refill(
      this.place,
      order
        .filter((words) => groups.has(words))
        .map((words) => [el("h2", {}, words), el("ul", {}, groups.get(words).map((session) => this.item(session)))]),
      archived.length > 0 &&
        el(
          "details",
          { class: "archive", open: wasOpen },
          el("summary", {}, `${MARKED.archived} (${archived.length})`),
          el("ul", {}, archived.map((session) => this.item(session))),
        ),
      this.next && button("Show more", { class: "link more", onclick: () => this.load(true) }),
    );
    if (focused) this.place.querySelector(`a[data-id="${CSS.escape(focused)}"]`)?.focus();
    const asked = this.search.value.trim();
    this.status.textContent = this.sessions.length ? (asked ? `${many(this.sessions.length, "conversation")} found` : "") : asked ? "Nothing found." : "No conversations yet.";
  }

  item(session) {
    const state = STATES[this.waiting.has(session.id) ? "waiting" : session.running ? "running" : session.state];
    const title = oneLine(session.title || "", 80) || "Untitled";
    const mark = marks.of(session.id);
    return el(
      "li",
      {},
      el(
        "a",
        { href: `/#${encodeURIComponent(session.id)}`, "data-id": session.id, "aria-current": session.id === this.current ? "page" : null },
        el("span", { class: "name" }, branches.all[session.id] && [icon("fork"), el("span", { class: "unseen" }, "branch: ")], shown(title.replace(BRANCH, branches.all[session.id] ? "$1" : "$&"))),
        session.match && el("span", { class: "match" }, shown(oneLine(session.match, 160))),
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
        iconButton(`${mark === "pinned" ? "Unpin" : "Pin"} ${plain(title)}`, "star", { class: "bare pin", "aria-pressed": String(mark === "pinned"), onclick: () => this.put(session, "pinned") }),
        iconButton(`${mark === "archived" ? "Unarchive" : "Archive"} ${plain(title)}`, "box", { class: "bare archive", "aria-pressed": String(mark === "archived"), onclick: () => this.put(session, "archived") }),
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
