// Keeps a page fresh. Progress comes as it happens (server-sent events); sections marked data-live are asked for
// again and replaced where they changed. The page is whole without this script.

import { sessionEnded } from "./api.js";
import { $, $$ } from "./dom.js";

const REFRESH_MS = 5000;
const STREAMS = 3; // browsers open six connections to a host over HTTP/1.1
const streams = new Map();
const served = new Map();

function follow() {
  for (const [id, source] of streams) {
    if ($(`[data-job="${id}"]`)) continue;
    source.close();
    streams.delete(id);
  }
  for (const { dataset } of $$("[data-job]")) {
    const id = dataset.job;
    if (streams.has(id) || streams.size >= STREAMS) continue;
    const source = new EventSource(`/jobs/${id}/events`);
    streams.set(id, source);
    source.addEventListener("progress", (event) => show(id, JSON.parse(event.data)));
    source.addEventListener("done", () => {
      source.close();
      streams.delete(id);
      refresh();
    });
  }
}

function show(id, reported) {
  const row = $(`[data-job="${id}"]`);
  if (!row) return;
  const bar = $("progress", row);
  if (bar && typeof reported.progress === "number") bar.value = reported.progress;
  const stage = $("[data-stage]", row);
  if (stage && reported.stage) stage.textContent = reported.stage;
  const share = $("[data-share]", row);
  if (share && typeof reported.progress === "number") share.textContent = `${Math.round(100 * reported.progress)}\u00a0%`;
  const state = $("[data-state]", row);
  if (state && state.textContent === "queued") {
    state.textContent = "running";
    state.className = "tag running";
  }
}

export async function refresh() {
  let page;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
    if (answer.redirected && new URL(answer.url).pathname === "/login") return sessionEnded();
    if (!answer.ok) return;
    page = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return; // the service is away; the next round tries again
  }
  for (const fresh of $$("[data-live]", page)) {
    const shown = document.getElementById(fresh.id);
    if (!shown || served.get(fresh.id) === fresh.innerHTML || shown.contains(document.activeElement)) continue;
    served.set(fresh.id, fresh.innerHTML);
    shown.replaceChildren(...fresh.childNodes);
  }
  follow();
}

for (const section of $$("[data-live]")) served.set(section.id, section.innerHTML);
follow();
setInterval(() => document.hidden || $("#session-ended") || refresh(), REFRESH_MS);
