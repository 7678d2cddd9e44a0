// A job's log as it is written, from its event stream; past lines come first.

import { $, el } from "./dom.js";

const card = $("[data-events]");
const list = $("#log");
const MOST = 500;
let stage = "";

function line(words, quiet) {
  list.append(el("li", quiet ? { class: "quiet" } : {}, words));
  while (list.children.length > MOST) list.firstChild.remove();
  list.scrollTop = list.scrollHeight;
}

// Candidates best first, each as it was last reported.
const race = new Map();
function candidate(reported) {
  race.set(reported.candidate, reported);
  const best = [...race.values()].sort((one, other) => other.mean_tpr - one.mean_tpr);
  $("#race").replaceChildren(...best.map((one) => el("tr", {}, el("th", { scope: "row" }, one.candidate), el("td", { class: "number" }, one.mean_tpr.toFixed(3)), el("td", { class: "number" }, `${one.folds} of ${one.of_folds}`))));
  $("#race-card").hidden = false;
}

const source = new EventSource(`/jobs/${card.dataset.events}/events`);
source.addEventListener("log", (event) => {
  const reported = JSON.parse(event.data);
  if (reported.candidate) candidate(reported);
  line(reported.message ?? reported.detail ?? JSON.stringify(reported));
});
source.addEventListener("progress", (event) => {
  const reported = JSON.parse(event.data);
  const said = [reported.stage, reported.message].filter(Boolean).join(": ");
  if (!said || said === stage) return;
  stage = said;
  line(said, true);
});
source.addEventListener("done", () => {
  source.close();
  $("#race-title").textContent = "Candidates";
  if (!list.children.length) card.hidden = true;
});
