// Times that the service kept, as the picture of one exchange: `{rows, end, isLive}`, as timeline.js draws it.

/**
 * The pictures of exchanges, each a set of call ids, oldest first. A run belongs to the exchange whose calls it ran; one
 * without calls, to the newest exchange without calls that has no run yet. Nothing where no times are kept.
 */
export function picturesOf(spans, exchanges) {
  const runs = spans.filter((span) => span.kind === "run").sort((a, b) => a.start_s - b.start_s);
  const inside = (run) => spans.filter((span) => span.parent === run.id);
  const found = exchanges.map(() => []);
  let newest = exchanges.length - 1;
  for (const run of runs.reverse()) {
    const calls = new Set(inside(run).filter((span) => span.kind === "call").map((span) => span.id));
    const asked = inside(run).filter((span) => span.kind === "approval").map((span) => span.id.replace(/-approval$/, ""));
    const ids = new Set([...calls, ...asked]);
    let at = exchanges.findLastIndex((exchange) => [...exchange].some((id) => ids.has(id)));
    if (at < 0 && !ids.size) at = exchanges.findLastIndex((exchange, index) => index <= newest && !exchange.size && !found[index].length);
    if (at < 0) continue;
    newest = at;
    found[at].unshift(run);
  }
  return found.map((its) => (its.length ? joined(its.map((run) => pictureOf(run, inside(run)))) : null));
}

function pictureOf(run, spans) {
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
