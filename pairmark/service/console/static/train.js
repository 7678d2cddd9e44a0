// Upload with a preview, a form for the learner's parameters, and the job. Every request is one of the public API.

import { api, coded, say, sendFile } from "./api.js";
import { $, $$, count, el } from "./dom.js";

const learners = {};
const wanted = new URLSearchParams(location.search);
const chosen = $("#dataset");
const upload = $("#upload");

// ---------------------------------------------------------------- preview

const ROLES = ["label", "ranking", "id", "group"];
const LISTED = 40;

function options(select, names, picked) {
  const all = picked && !names.includes(picked) ? [picked, ...names] : names;
  select.replaceChildren(el("option", { value: "" }, "none"), ...all.map((name) => el("option", { value: name, selected: name === picked }, name)));
}

// What the service would read of the file: columns, roles (guessed where they were not named), and what that can guarantee.
async function inspect(guess) {
  const file = $("#file").files[0];
  const place = $("#preview");
  const problem = $("[data-problem]", upload);
  problem.hidden = true;
  place.setAttribute("aria-busy", "true");
  try {
    const body = guess ? new FormData() : form(file);
    if (guess) body.append("file", file);
    body.delete("name");
    const reported = await api("POST", "/datasets/inspect", body);
    if (file !== $("#file").files[0]) return;
    if (guess) {
      const names = reported.columns.map((column) => column.name);
      for (const role of ROLES) options($(`#${role}`), names, [reported.request[role] ?? ""].flat().join(","));
      $("#label-role").value = "label";
      for (const role of ["exclude", "keep"]) $(`#${role}`).value = [reported.request[role] ?? []].flat().join(",");
    }
    shown(reported);
  } catch (error) {
    place.replaceChildren();
    say(problem, error);
  } finally {
    place.removeAttribute("aria-busy");
  }
}

// What a dataset can guarantee; where that depends on what its labels are, under either answer.
function promises(reported) {
  const note = (promise, opening) => el("p", { class: `note${promise.smallest_fpr === null ? " warn" : ""}` }, ...coded(`${opening}${promise.text}.`));
  const choices = reported.choices.filter((choice) => choice.promise);
  return reported.promise ? [note(reported.promise, "")] : choices.map((choice) => note(choice.promise, `If they are ${choice.meaning}: `));
}

// The question that a job would be refused without.
function ask(choices) {
  const place = $("#choices");
  place.hidden = !choices.length;
  place.replaceChildren(place.querySelector("legend"), ...choices.map((choice) => el("label", { class: "check" }, el("input", { type: "radio", name: "protocol", value: choice.protocol, required: true }), ` ${choice.protocol}: ${choice.meaning}`)));
}

const labels = (roles) => (roles.includes("identity") ? "identities" : roles.includes("classes") ? "classes" : "identities or classes");
function shown(reported) {
  const rows = reported.columns.slice(0, LISTED).map((column) => el("tr", {}, el("th", { scope: "row" }, column.name), el("td", {}, el("span", { class: `tag ${["feature", "points"].includes(column.role) ? "" : column.role === "excluded" ? "warn" : "accent"}` }, column.role === "excluded" ? "left out" : column.role), column.inferred ? el("span", { class: "small quiet" }, " guessed") : null), el("td", { class: "quiet" }, column.kind), el("td", { class: "number" }, column.distinct === null ? "–" : count(column.distinct)), el("td", { class: "quiet small" }, [...new Set(column.examples)].slice(0, 4).join(", "))));
  const heads = ["Column", "Role", "Kind", "Different values, about", "Examples"];
  $("#preview").replaceChildren(
    el("p", {}, [reported.rows !== null && `${count(reported.rows)} rows`, reported.features !== null && `${count(reported.features)} features`, reported.n_labels && `${count(reported.n_labels)} ${labels(reported.columns.map((column) => column.role))}`, reported.ranking_labels.length && `rankings of ${reported.ranking_labels.join(", ")}`].filter(Boolean).join("; ").replace(/.$/, "$&. "), "Check the roles below."),
    ...(reported.problem ? [el("p", { class: "note bad" }, ...coded(reported.problem))] : []),
    ...promises(reported),
    ...reported.warnings.map((warning) => el("p", { class: "note warn" }, ...coded(warning))),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Columns" }, el("table", {}, el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: at === 3 ? "number" : null }, head)))), el("tbody", {}, rows))),
    reported.columns.length > LISTED ? el("p", { class: "small quiet" }, `And ${count(reported.columns.length - LISTED)} more columns.`) : "",
  );
}

function preview(file) {
  upload.hidden = false;
  $("#name").value = file.name.replace(/\.(gz)$/, "").replace(/\.\w+$/, "").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[^A-Za-z0-9]+/, "");
  $("#preview").replaceChildren(el("p", { class: "quiet" }, `Reading ${file.name}…`));
  inspect(true);
}

function form(file) {
  const body = new FormData();
  body.append("file", file);
  for (const id of ["name", "label", ...ROLES.slice(1), "exclude", "keep"]) {
    const { value } = $(`#${id}`);
    if (value) body.append(id === "label" ? $("#label-role").value : id, value);
  }
  const pairs = $("#pairs").files[0];
  if (pairs) body.append("pairs", pairs);
  return body;
}

// ---------------------------------------------------------------- what a dataset is good for

function facts(reported) {
  const said = [`${count(reported.rows)} rows of ${count(reported.features)} features`];
  if (reported.n_labels) said.push(`${count(reported.n_labels)} ${labels([reported.label_role])}, ${count(reported.n_repeated_labels)} with two rows or more`);
  if (reported.ranking_labels?.length) said.push(`rankings of ${reported.ranking_labels.join(", ")}`);
  return said.join("; ");
}

async function describe() {
  const place = $("#dataset-said");
  place.replaceChildren();
  fitLearners();
  ask([]);
  if (!chosen.value) return;
  if (!$("#model").value) $("#model").value = chosen.selectedOptions[0].dataset.name;
  try {
    const reported = await api("GET", `/datasets/${encodeURIComponent(chosen.value)}`);
    ask(reported.choices);
    place.replaceChildren(el("p", { class: "small" }, facts(reported), "."), ...promises(reported), ...reported.warnings.map((warning) => el("p", { class: "note warn" }, ...coded(warning))));
  } catch (error) {
    place.replaceChildren(el("p", { class: "note bad" }, error.message));
  }
}

// ---------------------------------------------------------------- the learner's parameters

function field(name, schema) {
  const options = schema.anyOf ?? [schema];
  const kinds = options.map((one) => one.type);
  const id = `p-${name}`;
  const choices = options.find((one) => one.enum)?.enum;
  const fixed = schema.default === undefined || schema.default === null ? "" : typeof schema.default === "object" ? JSON.stringify(schema.default) : String(schema.default);
  let input;
  if (choices && options.filter((one) => one.type !== "null").length === 1) {
    input = el("select", { id }, el("option", { value: "" }, `default (${fixed || "none"})`), choices.map((one) => el("option", { value: JSON.stringify(one) }, String(one))));
  } else if (kinds.length === 1 && kinds[0] === "boolean") {
    input = el("select", { id }, el("option", { value: "" }, `default (${fixed})`), el("option", { value: "true" }, "true"), el("option", { value: "false" }, "false"));
  } else if (kinds.filter((kind) => kind !== "null").every((kind) => kind === "integer" || kind === "number")) {
    const bounds = options.find((one) => one.type !== "null");
    input = el("input", { id, type: "number", step: kinds.includes("number") ? "any" : 1, min: bounds.minimum, max: bounds.maximum, placeholder: fixed || "default" });
  } else {
    input = el("input", { id, placeholder: fixed || "default", autocomplete: "off" });
  }
  input.dataset.param = name;
  return el("div", { class: "field" }, el("label", { for: id }, name), input, schema.description ? el("span", { class: "help" }, schema.description) : null);
}

async function parameters() {
  const kind = $("#learner").value;
  $("#params-box").hidden = !kind;
  if (!kind) return $("#params").replaceChildren();
  if (!learners[kind]) for (const one of (await api("GET", "/learners")).items) learners[one.kind] = one;
  $("#params").replaceChildren(...Object.entries(learners[kind].params.properties).filter(([name]) => !["n_jobs", "verbose"].includes(name)).map(([name, schema]) => field(name, schema)));
  if (kind === wanted.get("learner")) start(wanted.get("params"));
}

// Parameters that a link brought along.
function start(text) {
  if (!text) return;
  for (const [name, value] of Object.entries(JSON.parse(text))) {
    const input = $(`#p-${name}`);
    if (!input) continue;
    input.value = input.tagName === "SELECT" && typeof value !== "boolean" ? JSON.stringify(value) : typeof value === "string" ? value : JSON.stringify(value);
    $("#params-box").open = true;
  }
}

function given() {
  const found = {};
  for (const input of $$("[data-param]")) {
    const text = input.value.trim();
    if (!text) continue;
    try {
      found[input.dataset.param] = JSON.parse(text);
    } catch {
      found[input.dataset.param] = text;
    }
  }
  return found;
}

// A dataset of rankings is for rankers, one of identities for the others.
function fitLearners() {
  const needs = chosen.selectedOptions[0]?.dataset.needs;
  for (const option of $("#learner").options) option.hidden = Boolean(needs && option.dataset.needs && option.dataset.needs !== needs);
  const now = $("#learner").selectedOptions[0];
  if (now?.hidden) {
    $("#learner").value = [...$("#learner").options].find((option) => !option.hidden)?.value ?? "";
    parameters();
  }
}

// ---------------------------------------------------------------- sending

upload.addEventListener("submit", async (event) => {
  event.preventDefault();
  const problem = $("[data-problem]", upload);
  problem.hidden = true;
  const bar = el("progress", { max: 1, value: 0, "aria-label": "Upload" });
  $("#upload-progress").replaceChildren(bar);
  $("button[type=submit]", upload).disabled = true;
  try {
    const reported = await sendFile("POST", "/datasets", form($("#file").files[0]), (share) => (bar.value = share));
    const ref = `${reported.name}:${reported.version}`;
    const needs = reported.ranking_labels.length ? "rankings" : "identities";
    if (![...chosen.options].some((option) => option.value === ref)) chosen.append(el("option", { value: ref, "data-needs": needs, "data-name": reported.name }, `${ref} (${count(reported.rows)} rows)`));
    chosen.value = ref;
    await describe();
    upload.hidden = true;
    $("#dataset-said").prepend(el("p", { class: "note good" }, reported.existing ? `${ref} exists already, with the same content.` : `Stored as ${ref}.`));
    $("#learner").focus();
  } catch (error) {
    say(problem, error);
  } finally {
    $("#upload-progress").replaceChildren();
    $("button[type=submit]", upload).disabled = false;
  }
});

$("#job").addEventListener("submit", async (event) => {
  event.preventDefault();
  const problem = $("[data-problem]", $("#job"));
  problem.hidden = true;
  if (!chosen.value) return say(problem, new Error("Choose a dataset, or upload one first."));
  const fields = new FormData($("#job"));
  const decimal = (name) => Number(String(fields.get(name)).replace(",", "."));
  const promote = fields.get("promote");
  const body = { dataset: chosen.value, model: fields.get("model"), params: given(), promote: { true: true, false: false }[promote] ?? promote };
  if (fields.get("learner")) body.learner = fields.get("learner");
  body.evaluation = {};
  if (fields.get("target")) body.evaluation.target_fpr = decimal("target") / 100;
  if (fields.get("protocol")) body.evaluation.protocol = fields.get("protocol");
  if (fields.get("budget")) body.budget_seconds = 60 * decimal("budget");
  const button = $("button[type=submit]", $("#job"));
  button.disabled = true;
  try {
    const job = await api("POST", "/jobs", body, { headers: { "idempotency-key": crypto.randomUUID?.() ?? String(Math.random()) } });
    location.assign(`/console/jobs/${job.id}`);
  } catch (error) {
    say(problem, error);
    button.disabled = false;
  }
});

for (const id of [...ROLES, "label-role", "exclude", "keep"]) $(`#${id}`).addEventListener("change", () => inspect(false));
$("#file").addEventListener("change", (event) => event.target.files[0] && preview(event.target.files[0]));
const drop = $("#drop");
for (const kind of ["dragover", "dragleave", "drop"]) {
  drop.addEventListener(kind, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", kind === "dragover");
    if (kind !== "drop" || !event.dataTransfer.files.length) return;
    $("#file").files = event.dataTransfer.files;
    preview(event.dataTransfer.files[0]);
  });
}
chosen.addEventListener("change", describe);
$("#learner").addEventListener("change", parameters);
describe();
parameters();
