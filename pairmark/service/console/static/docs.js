// The API reference: a form for every request, made from the OpenAPI document when its entry is opened.

import { segment } from "./api.js";
import { $, $$, el } from "./dom.js";

let document_ = null;
const loaded = () => (document_ ??= fetch("/openapi.json", { cache: "no-store" }).then((answer) => answer.json()));

function resolved(api, schema) {
  const name = schema?.$ref?.split("/").pop();
  return name ? api.components.schemas[name] : schema;
}

function input(parameter) {
  const id = `${Math.random().toString(36).slice(2)}-${parameter.name}`;
  const schema = parameter.schema ?? {};
  const options = (schema.anyOf ?? [schema]).find((one) => one.enum)?.enum;
  const field = options
    ? el("select", { id, "data-in": parameter.in, "data-name": parameter.name }, el("option", { value: "" }, "default"), options.map((one) => el("option", {}, String(one))))
    : el("input", { id, "data-in": parameter.in, "data-name": parameter.name, required: parameter.required, autocomplete: "off", placeholder: schema.default ?? parameter.example ?? "" });
  return el("div", { class: "field" }, el("label", { for: id }, parameter.name, parameter.required ? " *" : ""), field);
}

async function build(entry) {
  if (!$("[data-try]", entry)) {
    const answer = await fetch(`/docs?operation=${entry.id}`, { cache: "no-store" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const body = $("details.operation > div", page);
    if (body) $("div", entry).replaceWith(body);
  }
  const place = $("[data-try]", entry);
  if (!place || place.children.length) return;
  const api = await loaded();
  const { method, path } = entry.dataset;
  const operation = api.paths[path]?.[method.toLowerCase()];
  if (!operation) return;
  const json = operation.requestBody?.content?.["application/json"];
  const files = operation.requestBody?.content?.["multipart/form-data"];
  const form = el("form", { class: "card try" }, el("h3", {}, "Try it"), el("div", { class: "fields" }, (operation.parameters ?? []).filter((one) => one.in !== "cookie").map(input)));
  if (json) {
    const id = `${entry.id}-body`;
    const example = JSON.stringify(Object.values(json.examples)[0].value, null, 2).replace(/\[[^[\]{}]*\]/g, (list) => list.replace(/\s+/g, " "));
    form.append(el("div", { class: "field" }, el("label", { for: id }, "Body (JSON)"), el("textarea", { id, "data-body": true, spellcheck: "false" }, example)));
  } else if (files) {
    const schema = resolved(api, files.schema);
    form.append(el("div", { class: "fields" }, Object.entries(schema.properties ?? {}).map(([name, field]) => {
      const id = `${entry.id}-${name}`;
      const binary = [field, ...(field.anyOf ?? [])].some((one) => one.format === "binary" || one.contentMediaType);
      return el("div", { class: "field" }, el("label", { for: id }, name, schema.required?.includes(name) ? " *" : ""), el("input", { id, "data-part": name, type: binary ? "file" : "text" }));
    })));
  }
  form.append(el("p", {}, el("button", { type: "submit", class: method === "DELETE" ? "danger" : "" }, "Send")), el("div", { "aria-live": "polite", "data-answer": true }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, method, path);
  });
  place.append(form);
}

async function send(form, method, path) {
  const place = $("[data-answer]", form);
  const query = new URLSearchParams();
  const headers = { accept: "application/json, */*" };
  let address = path;
  for (const field of $$("[data-in]", form)) {
    const value = field.value.trim();
    const { in: where, name } = field.dataset;
    if (where === "path") {
      try {
        address = address.replace(`{${name}}`, segment(value));
      } catch (error) {
        return place.replaceChildren(el("p", { class: "note bad" }, error.message));
      }
    } else if (value && where === "query") query.set(name, value);
    else if (value && where === "header") headers[name] = value;
  }
  let body;
  const text = $("[data-body]", form);
  const parts = $$("[data-part]", form);
  if (text) {
    headers["content-type"] = "application/json";
    body = text.value;
  } else if (parts.length) {
    body = new FormData();
    for (const part of parts) {
      if (part.type === "file") part.files[0] && body.append(part.dataset.part, part.files[0]);
      else if (part.value) body.append(part.dataset.part, part.value);
    }
  }
  const token = $('meta[name="csrf-token"]')?.content;
  if (token && method !== "GET") headers["x-csrf-token"] = token;
  const url = `${address}${query.size ? `?${query}` : ""}`;
  if (path.endsWith("/events")) return place.replaceChildren(el("p", { class: "small" }, el("a", { href: url }, "Open the stream")));
  const started = performance.now();
  try {
    const answer = await fetch(url, { method, headers, body, cache: "no-store" });
    const type = answer.headers.get("content-type") ?? "";
    let shown;
    if (type.startsWith("image/")) shown = el("img", { src: url, alt: `answer of ${url}` });
    else if (/json|text/.test(type)) {
      const said = await answer.text();
      let pretty = said;
      try {
        pretty = JSON.stringify(JSON.parse(said), null, 2);
      } catch { /* not JSON: shown as it came */ }
      shown = el("pre", { class: "code", tabindex: 0 }, pretty.length > 20000 ? `${pretty.slice(0, 20000)}\n…` : pretty);
    } else shown = el("p", {}, `${type || "no body"}, ${(await answer.arrayBuffer()).byteLength} bytes`);
    place.replaceChildren(el("p", { class: "row" }, el("span", { class: `tag ${answer.ok ? "good" : "bad"}` }, String(answer.status)), el("span", { class: "small quiet" }, `${Math.round(performance.now() - started)} ms`)), shown);
  } catch (error) {
    place.replaceChildren(el("p", { class: "note bad" }, error.message));
  }
}

document.addEventListener("toggle", (event) => event.target.open && event.target.matches?.("details.operation") && build(event.target), true);

$("#find").addEventListener("submit", (event) => event.preventDefault());
$("#find input").addEventListener("input", (event) => {
  const asked = event.target.value.trim().toLowerCase();
  for (const entry of $$("details.operation")) entry.hidden = Boolean(asked) && !$("summary", entry).textContent.toLowerCase().includes(asked);
  for (const section of $$("main section")) section.hidden = !$$("details.operation", section).some((entry) => !entry.hidden);
});

const opened = location.hash ? document.getElementById(location.hash.slice(1)) : null;
if (opened?.matches("details")) {
  opened.open = true;
  build(opened);
}
$$("details.operation[open]").forEach(build);
