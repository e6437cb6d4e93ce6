// What every page asks for first, asked while the rest of it is still on its way. Sent apart from the other modules, because it
// is small and comes before them: on a slow line that saves a round.

{
  const linked = new URLSearchParams(location.hash.slice(1)).get("token");
  const token = linked || sessionStorage.getItem("callgate.token") || "";
  const headers = { Accept: "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  const own = { headers, cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" };
  const paths = ["/api/v1/models", "/api/v1/sessions?limit=40", "/api/v1/tools"];
  if (!linked && /^#[\w.~%-]+$/.test(location.hash)) paths.push(`/api/v1/sessions/${location.hash.slice(1)}`);
  const answers = new Map(paths.map((path) => [path, fetch(path, own)]));
  for (const answer of answers.values()) answer.catch(() => null); // its reader sees the failure
  globalThis.early = { token, answers };
}
