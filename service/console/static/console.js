"use strict";
// The page is whole without this script; it keeps what is shown fresh. Progress comes as it happens (server-sent
// events), everything else by asking for the page again and replacing the sections that changed.

const REFRESH_MS = 5000;
const STREAMS = 3; // browsers open six connections to a host over HTTP/1.1
const streams = new Map();
const asServed = new Map();

function follow() {
  for (const [id, source] of streams) {
    if (!document.querySelector(`[data-job="${id}"]`)) {
      source.close();
      streams.delete(id);
    }
  }
  for (const row of document.querySelectorAll("[data-job]")) {
    const id = row.dataset.job;
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

function show(id, told) {
  const row = document.querySelector(`[data-job="${id}"]`);
  if (!row) return;
  const bar = row.querySelector("progress");
  if (bar && typeof told.progress === "number") bar.value = told.progress;
  const stage = row.querySelector(".stage");
  if (stage && told.stage) stage.textContent = told.stage;
  const state = row.querySelector(".state");
  if (state && state.textContent === "queued") {
    state.textContent = "running";
    state.className = "state running";
  }
}

async function refresh() {
  let page;
  try {
    const answer = await fetch("/", { headers: { accept: "text/html" }, cache: "no-store" });
    if (answer.redirected || !answer.ok) return;
    page = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return; // the service is away; the next round tries again
  }
  for (const fresh of page.querySelectorAll("[data-live]")) {
    const shown = document.getElementById(fresh.id);
    if (!shown || asServed.get(fresh.id) === fresh.innerHTML) continue;
    asServed.set(fresh.id, fresh.innerHTML);
    const open = [...shown.querySelectorAll("details")].map((details) => details.open);
    shown.replaceChildren(...fresh.childNodes);
    shown.querySelectorAll("details").forEach((details, at) => (details.open = open[at] ?? false));
  }
  follow();
}

for (const section of document.querySelectorAll("[data-live]")) asServed.set(section.id, section.innerHTML);
follow();
setInterval(() => document.hidden || refresh(), REFRESH_MS);
