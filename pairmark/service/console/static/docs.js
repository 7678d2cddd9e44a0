// The API reference: every request with its parameters, bodies and answers, and a form to try it, from /openapi.json.

import { segment } from "./api.js";
import { $, $$, el } from "./dom.js";

const api = await (await fetch("/openapi.json", { cache: "no-store" })).json();

const resolved = (schema) => (schema?.$ref ? api.components.schemas[schema.$ref.split("/").pop()] : schema);

function kind(schema = {}) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return [...new Set(schema.anyOf.map(kind))].join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  return schema.type === "array" ? `list of ${kind(schema.items)}` : schema.type ?? "any";
}

// Words between backticks are code, and a number keeps its percent sign.
const worded = (text = "") => text.replaceAll(" %", "\u00a0%").split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
const pretty = (value) => JSON.stringify(value, null, 2).replace(/\[[^[\]{}]*\]/g, (list) => list.replace(/\s+/g, " "));
const code = (label, text) => el("pre", { class: "code", tabindex: 0, role: "region", "aria-label": label }, text);
const members = (schema) => Object.entries(resolved(schema)?.properties ?? {}).map(([name, field]) => ({ name, schema: field, ...field, required: resolved(schema).required?.includes(name) }));

function table(label, fields) {
  const rows = fields.map((one) => el("tr", {}, el("th", { scope: "row" }, one.name, one.required ? " *" : ""), el("td", {}, `${one.in ?? ""} ${kind(one.schema)}`), el("td", {}, worded(one.description))));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, el("table", {}, rows));
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

function curl(path, method, operation) {
  const { "application/json": json, "multipart/form-data": files } = operation.requestBody?.content ?? {};
  const query = (operation.parameters ?? []).filter((one) => one.required && one.in === "query").map((one) => `${one.name}=${one.example ?? "..."}`);
  const parts = ["curl", ...(method === "GET" ? [] : [`-X ${method}`]), `'${location.origin}${path}${query.length ? `?${query.join("&")}` : ""}'`];
  if (operation["x-required-scope"]) parts.push('-H "X-API-Key: $PAIRMARK_API_KEY"');
  if (json) parts.push("-H 'Content-Type: application/json'", `-d '${JSON.stringify(json.example)}'`);
  else if (files) parts.push(...members(files.schema).filter((one) => one.required).map((one) => `-F ${one.name}=...`));
  return parts.join(" ");
}

function form(path, method, operation) {
  const id = operation.operationId;
  const { "application/json": json, "multipart/form-data": files } = operation.requestBody?.content ?? {};
  const place = el("form", { class: "card try" }, el("h3", {}, "Try it"), el("div", { class: "fields" }, (operation.parameters ?? []).map(input)));
  if (json) place.append(el("div", { class: "field" }, el("label", { for: `${id}-body` }, "Body (JSON)"), el("textarea", { id: `${id}-body`, "data-body": true, spellcheck: "false" }, pretty(json.example))));
  else if (files) {
    place.append(el("div", { class: "fields" }, members(files.schema).map((one) => {
      const binary = [one.schema, ...(one.schema.anyOf ?? [])].some((option) => option.format === "binary" || option.contentMediaType);
      return el("div", { class: "field" }, el("label", { for: `${id}-${one.name}` }, one.name, one.required ? " *" : ""), el("input", { id: `${id}-${one.name}`, "data-part": one.name, type: binary ? "file" : "text" }));
    })));
  }
  place.append(el("p", {}, el("button", { type: "submit", class: method === "DELETE" ? "danger" : "" }, "Send")), el("div", { "aria-live": "polite", "data-answer": true }));
  place.addEventListener("submit", (event) => {
    event.preventDefault();
    send(place, method, path);
  });
  return place;
}

function details(path, method, operation) {
  const id = operation.operationId;
  const scope = operation["x-required-scope"];
  const access = scope === "any" ? "Any key, once a key exists." : scope ? `Scope: ${scope}, once a key exists.` : "Open.";
  const bodies = Object.entries(operation.requestBody?.content ?? {}).flatMap(([type, { schema }]) => (schema.anyOf ?? [schema]).map((option) => [type, option]));
  const answers = Object.entries(operation.responses).filter(([status]) => status.startsWith("2"));
  return [
    ...operation.description.split("\n\n").map((part) => el("p", {}, worded(part))),
    el("p", { class: "small quiet" }, `${access} * = required`),
    code(`curl line of ${id}`, curl(path, method, operation)),
    form(path, method, operation),
    ...(operation.parameters?.length ? [el("h3", {}, "Parameters"), table(`Parameters of ${id}`, operation.parameters)] : []),
    ...bodies.flatMap(([type, schema], at) => [el("h3", {}, `${at ? "Or" : "Body"}: ${type}`), ...(members(schema).length ? [table(`Body ${at + 1} of ${id}`, members(schema))] : [])]),
    el("h3", {}, "Answers"),
    ...answers.flatMap(([status, answer]) => {
      const [type, content] = Object.entries(answer.content ?? {})[0] ?? ["", {}];
      return [
        el("p", {}, el("strong", {}, status), ` ${type} `, worded(answer.description)),
        ...(members(content.schema).length ? [table(`Answer ${status} of ${id}`, members(content.schema))] : []),
        ...(content.example === undefined ? [] : [code(`Answer ${status} of ${id} by example`, pretty(content.example))]),
      ];
    }),
  ];
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
      let said = await answer.text();
      try {
        said = JSON.stringify(JSON.parse(said), null, 2);
      } catch { /* not JSON: shown as it came */ }
      shown = el("pre", { class: "code", tabindex: 0 }, said.length > 20000 ? `${said.slice(0, 20000)}\n…` : said);
    } else shown = el("p", {}, `${type || "no body"}, ${(await answer.arrayBuffer()).byteLength} bytes`);
    place.replaceChildren(el("p", { class: "row" }, el("span", { class: `tag ${answer.ok ? "good" : "bad"}` }, String(answer.status)), el("span", { class: "small quiet" }, `${Math.round(performance.now() - started)} ms`)), shown);
  } catch (error) {
    place.replaceChildren(el("p", { class: "note bad" }, error.message));
  }
}

const groups = new Map();
for (const [path, operations] of Object.entries(api.paths)) {
  for (const [name, operation] of Object.entries(operations)) {
    const method = name.toUpperCase();
    const summary = el("summary", {}, el("span", { class: `verb ${name}` }, method), " ", el("code", {}, path), " ", el("span", { class: "quiet" }, operation.summary));
    const entry = el("details", { class: "operation", id: operation.operationId }, summary);
    // Most are never opened.
    entry.addEventListener("toggle", () => entry.children.length === 1 && entry.append(el("div", {}, details(path, method, operation))));
    const [tag] = operation.tags ?? ["other"];
    groups.set(tag, [...(groups.get(tag) ?? []), entry]);
  }
}
for (const [tag, entries] of groups) {
  const title = tag[0].toUpperCase() + tag.slice(1);
  $("#reference").append(el("section", { "aria-labelledby": `group-${tag}` }, el("div", { class: "title" }, el("h2", { id: `group-${tag}` }, title)), entries));
}

$("#find").addEventListener("submit", (event) => event.preventDefault());
$("#find input").addEventListener("input", (event) => {
  const asked = event.target.value.trim().toLowerCase();
  for (const entry of $$("details.operation")) entry.hidden = Boolean(asked) && !$("summary", entry).textContent.toLowerCase().includes(asked);
  for (const section of $$("main section")) section.hidden = !$$("details.operation", section).some((entry) => !entry.hidden);
});

const opened = location.hash ? document.getElementById(location.hash.slice(1)) : null;
if (opened?.matches("details")) opened.open = true;
