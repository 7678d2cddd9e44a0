// Forms and buttons declared in the markup: data-api="METHOD /path" sends the form's fields as JSON to the public API, over
// what data-body has.

import { api, say } from "./api.js";
import { $, $$, toast } from "./dom.js";

function body(form) {
  const found = JSON.parse(form.dataset.body ?? "{}");
  for (const field of form.elements) {
    if (!field.name || field.disabled || (field.type === "checkbox" && field.name.endsWith("[]") && !field.checked)) continue;
    let value = field.type === "checkbox" && !field.name.endsWith("[]") ? field.checked : field.value;
    if (value === "" && !("keepEmpty" in field.dataset)) continue;
    if (field.dataset.as === "number") value = Number(value);
    if (field.name.endsWith("[]")) (found[field.name.slice(0, -2)] ??= []).push(value);
    else found[field.name] = value;
  }
  return found;
}

async function send(form) {
  if (form.dataset.confirm && !window.confirm(form.dataset.confirm)) return;
  const [method, path] = form.dataset.api.split(" ");
  const problem = $("[data-problem]", form);
  if (problem) problem.hidden = true;
  const buttons = $$("button", form);
  buttons.forEach((button) => (button.disabled = true));
  try {
    const given = method === "DELETE" ? undefined : body(form);
    const match = form.dataset.ifMatch;
    const answer = await api(method, path, given, { headers: match ? { "if-match": `"${match}"` } : {} });
    form.dispatchEvent(new CustomEvent("answered", { detail: answer, bubbles: true }));
    const then = form.dataset.then;
    if (then === "reload") location.reload();
    else if (then) location.assign(then);
  } catch (error) {
    if (problem) say(problem, error);
    else toast(error.message);
  } finally {
    buttons.forEach((button) => (button.disabled = false));
  }
}

document.addEventListener("submit", (event) => {
  if (!event.target.dataset.api) return;
  event.preventDefault();
  send(event.target);
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.opens) $(`#${button.dataset.opens}`).showModal();
  if ("closes" in button.dataset) button.closest("dialog").close();
  if (button.dataset.copies) {
    try {
      await navigator.clipboard.writeText($(`#${button.dataset.copies}`).textContent);
      toast("Copied");
    } catch {
      getSelection().selectAllChildren($(`#${button.dataset.copies}`));
      toast("Selected: copy with Ctrl+C");
    }
  }
});

// What only works with scripts is shown by them.
$$("[data-needs-script]").forEach((node) => (node.hidden = false));
