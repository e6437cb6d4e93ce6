// Times that the service kept, as the picture of one exchange: `{rows, end, isLive}`, as timeline.js draws it.

/** The picture of an exchange by the ids of its runs; nothing where no times are kept. */
export function pictureOf(spans, ids) {
  const runs = ids.map((id) => spans.find((span) => span.kind === "run" && span.id === id)).filter(Boolean);
  return runs.length ? joined(runs.map((run) => runPicture(run, spans.filter((span) => span.parent === run.id)))) : null;
}

/** What the exchanges of a conversation have cost that were not taken back. */
export function spentIn(session) {
  const usage = {};
  let cost = null;
  for (const exchange of session?.exchanges || []) {
    for (const [key, value] of Object.entries(exchange.usage)) usage[key] = (usage[key] || 0) + value;
    if (typeof exchange.cost === "number") cost = (cost ?? 0) + exchange.cost;
  }
  return { usage, cost };
}

function runPicture(run, spans) {
  const end = run.end_s ?? Date.now() / 1000;
  const rows = new Map([["model", { label: "Model", spans: [] }]]);
  const calls = spans.filter((span) => span.kind !== "model").sort((a, b) => a.start_s - b.start_s);
  for (const span of calls) {
    const id = span.id.replace(/-approval$/, "");
    const row = rows.get(id) || { label: span.name, spans: [] };
    rows.set(id, row);
    row.spans.push({ kind: span.kind === "approval" ? "approval" : "running", start: span.start_s, end: span.end_s ?? end });
  }
  const model = spans.filter((span) => span.kind === "model");
  rows.get("model").spans = model.length
    ? model.map((span) => ({ kind: "model", start: span.start_s, end: span.end_s ?? end }))
    : gaps([...rows.values()].flatMap((row) => row.spans), run.start_s, end);
  return { rows, begin: run.start_s, end, isLive: run.end_s === null };
}

/** Where nothing else was at work, the model was: for models that do not count. */
function gaps(spans, begin, end) {
  const found = [];
  let at = begin;
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    if (span.start > at) found.push({ kind: "model", start: at, end: span.start });
    at = Math.max(at, span.end);
  }
  if (end > at) found.push({ kind: "model", start: at, end });
  return found;
}

/** Several runs of one exchange in one picture; the time between them is left out, since nothing waited for it here. */
function joined(pictures) {
  const rows = new Map();
  let offset = 0;
  for (const picture of pictures) {
    for (const [id, row] of picture.rows) {
      const into = rows.get(id) || { id, label: row.label, spans: [] };
      rows.set(id, into);
      into.spans.push(...row.spans.map((span) => ({ ...span, start: span.start - picture.begin + offset, end: span.end - picture.begin + offset })));
    }
    offset += picture.end - picture.begin;
  }
  return { rows: [...rows.values()].filter((row) => row.spans.length), end: offset, isLive: pictures.at(-1).isLive };
}
