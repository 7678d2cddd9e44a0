// Making a key: it is shown once.

import { api, say } from "./api.js";
import { $, el } from "./dom.js";

$("#new-key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  const problem = $("[data-problem]", event.target);
  problem.hidden = true;
  try {
    const on = form.get("on") ? `:${form.get("on")}` : "";
    const body = { name: form.get("name"), scopes: form.getAll("scopes").map((scope) => scope + on) };
    if (form.get("days")) body.expires_in_days = Number(form.get("days"));
    const made = await api("POST", "/keys", body);
    $("#new-key").close();
    $("#made").replaceChildren(el("div", { class: "note good" }, el("p", {}, `The key of ${made.name}, shown this once:`), el("pre", { class: "code", id: "made-key", tabindex: 0 }, made.key), el("button", { type: "button", class: "second slim", "data-copies": "made-key" }, "Copy"), " ", el("a", { href: location.pathname }, "Done")));
  } catch (error) {
    say(problem, error);
  }
});
