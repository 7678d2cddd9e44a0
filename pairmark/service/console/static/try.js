// One pair or one point, asked of the public API.

import { api, ApiError, say, waysOut } from "./api.js";
import { $, $$, count, el, number, percent } from "./dom.js";

const { model, features, can, calibrated } = $("#try")?.dataset ?? {};
const dimension = Number(features);

function numbers(text, what) {
  const found = text.replace(/[[\]]/g, " ").split(/[\s,;]+/).filter(Boolean).map(Number);
  if (found.some((value) => !Number.isFinite(value))) throw new ApiError(0, { detail: `${what}: expected numbers` });
  if (found.length !== dimension) throw new ApiError(0, { detail: `${what}: ${found.length} numbers; ${model} takes ${dimension}` });
  return found;
}

// One vector, or several samples of one subject, a line each; a sparse row as it was read.
function side(id) {
  const text = $(`#${id}`).value.trim();
  if (text.startsWith("{")) {
    try {
      return JSON.parse(text);
    } catch {
      throw new ApiError(0, { detail: `${id}: expected numbers, or {"indices": [...], "values": [...]}` });
    }
  }
  const lines = text.split("\n").filter((line) => line.trim());
  if (lines.length > 1 && lines.every((line) => line.replace(/[[\]]/g, " ").split(/[\s,;]+/).filter(Boolean).length === dimension)) return { samples: lines.map((line, at) => numbers(line, `${id}, line ${at + 1}`)) };
  return numbers(text, id);
}

async function row(id) {
  const dataset = $("#dataset")?.value;
  const place = $(`#${id}`);
  if (!dataset) {
    $(`#${id}-said`).textContent = "";
    return;
  }
  const at = Number($(`#${id}-row`).value);
  const reported = await api("GET", `/datasets/${encodeURIComponent(dataset)}/rows?start=${at}&limit=1`);
  const found = reported.items[0];
  if (!found) throw new ApiError(0, { detail: `${dataset} has ${count(reported.rows)} rows, 0 to ${reported.rows - 1}` });
  place.value = Array.isArray(found.vector) ? found.vector.map((value) => number(value, 7)).join(", ") : JSON.stringify(found.vector);
  $(`#${id}-said`).textContent = [`row ${at}`, found.label !== null && `label ${found.label}`, found.id !== null && `id ${found.id}`].filter(Boolean).join(", ");
}

async function rows() {
  const problem = $("[data-problem]", $("#pair"));
  problem.hidden = true;
  try {
    await Promise.all([row("left"), row("right")]);
  } catch (error) {
    say(problem, error);
  }
}

function decided(answer) {
  const { score, match, threshold, compared, missing } = answer.matches[0];
  const point = answer.operating_point;
  if (missing) return [el("p", { class: "promise" }, el("span", { class: "tag different" }, "no match"), " too little to compare"), el("p", { class: "quiet" }, `Not compared: ${missing.join(", ")}. Any of these columns may help.`)];
  return [
    el("p", { class: "promise" }, el("span", { class: `tag ${match ? "match" : "different"}` }, match ? "match" : "different"), " score ", el("strong", {}, number(score)), `, threshold ${number(threshold ?? point.threshold)}`),
    ...(compared ? [el("p", {}, `Compared by ${compared.join(", ")}, which both sides have, at the threshold for these columns.`)] : []),
    el("p", { class: "quiet" }, `${point.meaning} (${point.method ? `${point.method}, ` : ""}${count(point.n_units)} ${point.protocol === "open-set" ? "people" : "samples"})`),
  ];
}

const shown = (value) => (typeof value === "number" ? number(value, 5) : typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));

const table = (heads, rows, label) => el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, el("table", {}, el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head.replaceAll("_", " "))))), el("tbody", {}, rows.map((one) => el("tr", {}, heads.map((head) => el("td", {}, one[head] === undefined ? "–" : shown(one[head]))))))));

// What a part adds to the score: of a sum, or along the paths of trees.
const weight = (one) => one.contribution ?? one.effect;

// What speaks most for and against the same: a sentence and a bar each; the rest is folded.
function strongest(entries, heads) {
  const sorted = [...entries].sort((a, b) => Math.abs(weight(b)) - Math.abs(weight(a)));
  const most = Math.abs(weight(sorted[0])) || 1;
  // A coordinate of PLDA is named by the features that weigh most in it.
  const named = (one) => one.features ? one.features.slice(0, 3).map((each) => each.feature).join(", ") : [shown(one.field ?? one.feature ?? one.column ?? one.meta_feature ?? Object.values(one)[0]), one.map ? ` (${one.map})` : ""].join("");
  const bars = sorted.slice(0, 5).map((one) => el("tr", {}, el("th", { scope: "row" }, named(one)), el("td", {}, el("meter", { min: 0, max: 1, value: Math.abs(weight(one)) / most, "aria-hidden": "true" })), el("td", {}, `speaks ${weight(one) < 0 ? "against" : "for"} the same, ${number(weight(one), 3)}`)));
  const rest = sorted.slice(5, 25);
  return [
    el("h3", {}, "What decides most"),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "What decides most" }, el("table", {}, el("tbody", {}, bars))),
    ...(rest.length ? [el("details", {}, el("summary", {}, `${count(sorted.length - 5)} more`), table(heads, rest, "The rest"))] : []),
  ];
}

// Explanations differ by learner: lists of like records become tables, the rest a list of facts.
function explained(reported) {
  const parts = [], facts = [];
  for (const [name, value] of Object.entries(reported)) {
    if (Array.isArray(value) && value.length && value.every((one) => one !== null && typeof one === "object" && !Array.isArray(one))) {
      const heads = [...new Set(value.flatMap((one) => Object.keys(one)))].slice(0, 8);
      if (value.every((one) => typeof weight(one) === "number")) {
        parts.push(...strongest(value, heads));
        continue;
      }
      parts.push(el("details", {}, el("summary", {}, `${count(value.length)} ${name.replaceAll("_", " ")}`), table(heads, value.slice(0, 20), name), value.length > 20 ? el("p", { class: "small quiet" }, `And ${value.length - 20} more.`) : ""));
    } else if (value !== null && !(typeof value === "number" && Math.abs(value) < 1e-9)) {
      facts.push(el("dt", {}, name.replaceAll("_", " ")), el("dd", {}, shown(value).slice(0, 400)));
    }
  }
  return [...(facts.length ? [el("dl", { class: "facts" }, facts)] : []), ...parts];
}

$("#pair")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const problem = $("[data-problem]", $("#pair"));
  problem.hidden = true;
  $("#answer").hidden = $("#why").hidden = true;
  try {
    const body = { model, left: side("left"), right: side("right") };
    const rate = Number(String($("#fpr")?.value ?? "").replace(",", ".")) / 100;
    if (calibrated === "1" && rate) {
      const answer = await api("POST", `/match?fpr=${rate}`, body).catch((error) => {
        if (error.problem?.type !== "/problems/insufficient-calibration-data") throw error;
        return error;
      });
      if (answer instanceof ApiError) {
        const { scores } = await api("POST", "/similarity", body);
        $("#answer").replaceChildren(el("p", { class: "promise" }, "score ", el("strong", {}, number(scores[0]))), el("p", { class: "note warn" }, answer.message, ...waysOut(answer)));
      } else $("#answer").replaceChildren(...decided(answer));
    } else {
      const { scores } = await api("POST", "/similarity", body);
      $("#answer").replaceChildren(el("p", { class: "promise" }, "score ", el("strong", {}, number(scores[0]))), el("p", { class: "quiet" }, "Higher is more similar."));
    }
    $("#answer").hidden = false;
    try {
      const why = await api("POST", "/explain", body);
      $("#explanation").replaceChildren(...explained(why.explanation));
      $("#why").hidden = false;
    } catch {
      $("#why").hidden = true; // not every learner explains itself
    }
  } catch (error) {
    say(problem, error);
  }
});

$("#rank")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const problem = $("[data-problem]", $("#rank"));
  problem.hidden = true;
  try {
    const inputs = $$("[data-feature]");
    const point = inputs.length ? inputs.map((input) => Number(input.value.replace(",", "."))) : numbers($("#features").value, "features");
    const answer = await api("POST", "/rank-labels", { model, features: [point] });
    const [ranking] = answer.rankings;
    const top = Math.max(...ranking.labels.map((label) => ranking.scores[label]));
    const low = Math.min(0, ...ranking.labels.map((label) => ranking.scores[label]));
    $("#ranked").replaceChildren(
      el("div", { class: "title" }, el("h2", {}, "Best first")),
      ...ranking.labels.map((label, at) => el("div", { class: "bar" }, el("span", {}, `${at + 1}. ${label}`), el("meter", { min: low, max: top || 1, value: ranking.scores[label], "aria-label": `Score of ${label}` }), el("span", { class: "quiet" }, number(ranking.scores[label], 4)))),
    );
    $("#ranked").hidden = false;
  } catch (error) {
    say(problem, error);
  }
});

if ($("#dataset")) {
  for (const id of ["#dataset", "#left-row", "#right-row"]) $(id).addEventListener("change", rows);
  rows().then(() => new URLSearchParams(location.search).has("left") && $("#pair").requestSubmit());
}
if (can === undefined) $("#pair")?.remove();
