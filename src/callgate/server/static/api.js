// The HTTP API as functions: requests with the token if there is one, errors as sentences, and streams that reconnect.

const TOKEN = "callgate.token";
const BACKOFF_S = [0.5, 1, 2, 4, 8, 15];
const SILENCE_S = 45; // the service says something every 15 s; a stream that is silent for longer is dead

/** What the service answered when it did not do what was asked. */
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The service could not be reached at all. */
export class Unreachable extends Error {}

export const token = {
  get: () => sessionStorage.getItem(TOKEN) || "",
  set: (value) => (value ? sessionStorage.setItem(TOKEN, value) : sessionStorage.removeItem(TOKEN)),
};

// The link that `callgate serve` prints has the token behind the '#', which no server or log sees. It does not stay there.
const linked = new URLSearchParams(location.hash.slice(1)).get("token");
if (linked) {
  token.set(linked);
  history.replaceState(null, "", location.pathname + location.search);
}

/** Set by the page: asks a person for the token, and gives it, or nothing if there is none to give. */
export const ask = { token: async () => "" };

/** Those who want to know whether the service answers: functions of one boolean. */
export const watchers = new Set();
const heard = (isThere) => watchers.forEach((watcher) => watcher(isThere));

/** The answer to what the page asked for while it was loading; each can be taken once. */
function takeEarly(method, path, headers) {
  const { early } = globalThis;
  if (method !== "GET" || headers["If-None-Match"] || early?.token !== token.get()) return null;
  const answer = early.answers.get(path);
  early.answers.delete(path);
  return answer;
}

/** What was not taken while the page was put together is old from now on. */
export const forgetEarly = () => globalThis.early?.answers.clear();

function unreached() {
  heard(false);
  return new Unreachable("The service cannot be reached.");
}

/** The JSON of an answer. One that breaks off has begun like any other: its service went away meanwhile. */
const bodyOf = (response) => response.json().catch(() => Promise.reject(unreached()));

async function send(method, path, { body, headers = {}, signal } = {}) {
  const all = { Accept: "application/json", ...headers };
  if (body !== undefined) all["Content-Type"] = "application/json";
  if (token.get()) all.Authorization = `Bearer ${token.get()}`;
  let response;
  try {
    const sent = { method, headers: all, body: body === undefined ? undefined : JSON.stringify(body), signal };
    const asked = takeEarly(method, path, headers) ?? fetch(path, { ...sent, cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" });
    response = await asked;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreached();
  }
  heard(true);
  if (response.ok || response.status === 304) return response;
  const said = await response.json().catch(() => ({}));
  throw new Refused(response.status, said.error || "error", said.message || `The service answered ${response.status}.`);
}

/** One request; asks for the token when the service wants one. */
async function request(method, path, options = {}) {
  const used = token.get();
  try {
    return await send(method, path, options);
  } catch (error) {
    if (error.status !== 401) throw error;
    // A request that was refused late does not ask again: the token may be another one by now.
    if (token.get() === used) {
      const given = await ask.token(Boolean(used));
      if (!given) throw error;
      token.set(given);
    }
    return request(method, path, options);
  }
}

async function json(method, path, body) {
  const response = await request(method, path, { body });
  return response.status === 204 ? {} : bodyOf(response);
}

const part = encodeURIComponent;
const session = (id, rest = "") => `/api/v1/sessions/${part(id)}${rest}`;

export const api = {
  health: () => json("GET", "/api/v1/health"),
  models: () => json("GET", "/api/v1/models"),
  tools: () => json("GET", "/api/v1/tools"),
  sessions: (query, cursor) =>
    json("GET", `/api/v1/sessions?limit=40${query ? `&query=${part(query)}` : ""}${cursor ? `&cursor=${part(cursor)}` : ""}`),
  /** A session, with the tag of this state of it; nothing if it is still in the state with the tag `known`. */
  async session(id, known = null) {
    const response = await request("GET", session(id), { headers: known ? { "If-None-Match": known } : {} });
    return response.status === 304 ? null : { ...(await bodyOf(response)), tag: response.headers.get("etag") };
  },
  trace: (id) => json("GET", session(id, "/trace")),
  rename: (id, title) => json("PATCH", session(id), { title }),
  remove: (id) => json("DELETE", session(id)),
  cancel: (id) => json("POST", session(id, "/cancel"), {}),
  /** `where` says up to which exchange: `{after: id}` or `{before: id}`. */
  fork: (id, where) => json("POST", session(id, "/fork"), where),
  undo: (id, exchanges) => json("POST", session(id, "/undo"), { exchanges }),
  approvals: () => json("GET", "/api/v1/approvals"),
  answer: (id, call, answer) => json("POST", `/api/v1/approvals/${part(id)}/${part(call)}`, answer),
  /** Answers a question of an MCP server. */
  reply: (id, question, answer) => json("POST", `/api/v1/questions/${part(id)}/${part(question)}`, answer),
};

// Uploads ----------------------------------------------------------------------------------------------------------------

const ATTEMPTS = 5; // for one piece, while the service is away

/** Uploads a file to the provider in pieces and gives its part; `moved(fraction)` says how far it is, and throws to end it. */
export async function upload(file, { name, kind }, moved) {
  let state = await json("POST", "/api/v1/files", { name, size: file.size, ...(kind ? { mime_type: kind } : {}) });
  const path = `/api/v1/files/${part(state.id)}`;
  try {
    for (let failures = 0; !state.part; ) {
      moved(state.received / file.size);
      try {
        const bytes = await file.slice(state.received, state.received + state.piece_bytes).arrayBuffer();
        state = await json("POST", path, { offset: state.received, data: base64(new Uint8Array(bytes)) });
        failures = 0;
      } catch (error) {
        if (!(error instanceof Unreachable) || (failures += 1) >= ATTEMPTS) throw error;
        await new Promise((resolve) => setTimeout(resolve, 1000 * BACKOFF_S[failures]));
        state = await json("GET", path).catch(() => state);
      }
    }
  } catch (error) {
    json("DELETE", path).catch(() => null); // nobody asks for the rest of it
    throw error;
  }
  return state.part;
}

export function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 32_768) text += String.fromCharCode(...bytes.subarray(at, at + 32_768));
  return btoa(text);
}

// Streams ----------------------------------------------------------------------------------------------------------------

/** Cuts server-sent events out of text that arrives in pieces. */
export class EventReader {
  constructor() {
    this.rest = "";
  }

  feed(text) {
    // A long event comes in many pieces; what was looked through for its end is not looked through again.
    let seen = Math.max(0, this.rest.length - 3);
    this.rest += text;
    const events = [];
    for (;;) {
      const ends = /\r\n\r\n|\n\n|\r\r/g;
      ends.lastIndex = seen;
      const end = ends.exec(this.rest);
      if (!end) return events;
      const event = EventReader.read(this.rest.slice(0, end.index));
      this.rest = this.rest.slice(end.index + end[0].length);
      seen = 0;
      if (event) events.push(event);
    }
  }

  static read(block) {
    const event = { id: null, type: "message", data: [] };
    for (const line of block.split(/\r\n|\n|\r/)) {
      const [, field, value] = /^([^:]*):? ?([\s\S]*)$/.exec(line);
      if (field === "data") event.data.push(value);
      else if (field === "id") event.id = value;
      else if (field === "event") event.type = value;
    }
    return event.data.length ? { ...event, data: event.data.join("\n") } : null;
  }
}

/** A key that no other request has. */
export function freshKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const LASTS = new Set(["run_ended", "error"]);

/**
 * A run that is watched to its end, over as many connections as that takes.
 *
 * `open` begins one of two ways: with the body of a chat request (sent again under the same key until the service has it), or
 * with the id of a session whose live run is joined. `on` has event(event), lost(seconds, retry), found(), gone() and
 * refused(error): exactly one of an ending event, gone and refused is the last.
 */
export class Watch {
  constructor(on, { body = null, sessionId = null, after = null } = {}) {
    this.on = on;
    this.body = body;
    this.session = sessionId;
    this.after = after;
    this.key = freshKey();
    this.failures = 0;
    this.ended = false;
    this.abort = new AbortController();
    this.running = this.run();
  }

  /** Stop watching; the run goes on. */
  leave() {
    this.ended = true;
    this.abort.abort();
    this.wake?.();
  }

  async run() {
    while (!this.ended) {
      try {
        const response = await this.connect();
        if (this.ended) return;
        if (this.failures) this.on.found();
        this.failures = 0;
        if (!(response.headers.get("content-type") || "").includes("text/event-stream")) {
          throw new Refused(response.status, "no_stream", "The service did not answer with a stream of events.");
        }
        await this.read(response.body.getReader());
      } catch (error) {
        if (this.ended) return;
        if (error instanceof Refused && this.settled(error)) return;
      }
      if (!this.ended) await this.pause();
    }
  }

  connect() {
    this.abort = new AbortController();
    const headers = { Accept: "text/event-stream" };
    const { signal } = this.abort;
    if (!this.session) {
      return request("POST", "/api/v1/chat", { body: this.body, headers: { ...headers, "Idempotency-Key": this.key }, signal });
    }
    if (this.after) headers["Last-Event-ID"] = this.after;
    return request("GET", session(this.session, "/events"), { headers, signal });
  }

  /** Whether a refusal ends the watch. A busy or broken service is asked again. */
  settled(error) {
    // What the model's own server refused is an answer: only a service that is busy or away is asked again.
    const isOfModel = error.code.startsWith("model_");
    if ([429, 502, 503, 504].includes(error.status) && !isOfModel && this.failures < 6) return false;
    this.ended = true;
    if (this.session && this.after !== null && [404, 409, 410].includes(error.status)) this.on.gone();
    else this.on.refused(error);
    return true;
  }

  async read(reader) {
    const events = new EventReader();
    const decoder = new TextDecoder();
    let alarm;
    const silence = () => this.abort.abort();
    try {
      for (;;) {
        clearTimeout(alarm);
        alarm = setTimeout(silence, SILENCE_S * 1000);
        const { value, done } = await reader.read();
        if (done) return;
        for (const event of events.feed(decoder.decode(value, { stream: true }))) this.take(event);
        if (this.ended) return;
      }
    } finally {
      clearTimeout(alarm);
    }
  }

  take({ id, type, data }) {
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      return; // a line that is no JSON says nothing
    }
    event.type ??= type;
    if (id) this.after = id;
    if (event.type === "run_started") this.session = event.session;
    this.ended = LASTS.has(event.type);
    this.on.event(event);
  }

  async pause() {
    const base = BACKOFF_S[Math.min(this.failures, BACKOFF_S.length - 1)];
    const wait = base * (0.75 + Math.random() / 2);
    this.failures += 1;
    const now = () => this.wake?.();
    this.on.lost(wait, now);
    globalThis.addEventListener("online", now, { once: true });
    await new Promise((resolve) => {
      this.wake = resolve;
      setTimeout(resolve, wait * 1000);
    });
    globalThis.removeEventListener("online", now);
  }
}
