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

const source = new EventSource(`/jobs/${card.dataset.events}/events`);
source.addEventListener("log", (event) => {
  const told = JSON.parse(event.data);
  line(told.message ?? told.detail ?? JSON.stringify(told));
});
source.addEventListener("progress", (event) => {
  const told = JSON.parse(event.data);
  const said = [told.stage, told.message].filter(Boolean).join(": ");
  if (!said || said === stage) return;
  stage = said;
  line(said, true);
});
source.addEventListener("done", () => {
  source.close();
  if (!list.children.length) card.hidden = true;
});
