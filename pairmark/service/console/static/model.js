// The operating point: a rate is chosen on the curve, and then asked of the service.

import { api, ApiError, waysOut } from "./api.js";
import { Chart } from "./chart.js";
import { $, $$, count, el, number, percent } from "./dom.js";

const CURVE_POINTS = 400;
const ASK_AFTER_MS = 150;
const card = $("#point");
const { base, url, calibration } = card.dataset;
const state = { fpr: Number(card.dataset.fpr) || 0.01, fnr: null, curve: "roc", point: null, other: null, language: "curl" };

const clean = (problem) => (problem instanceof ApiError ? problem.message : String(problem));

function smallest(reported, confidence) {
  const rates = reported?.summary?.smallest_fpr?.[Number(confidence).toFixed(2)];
  if (!rates) return null;
  const method = $("#method")?.value;
  if (method === "estimate") return null;
  if (method && method !== "auto") return rates[method] ?? null;
  return rates["finite-sample"] ?? null;
}

// ---------------------------------------------------------------- curves

function least(roc) {
  return Math.max(Math.min(...roc.fpr.filter((rate) => rate > 0), 1e-2), 1e-6);
}

function parts(roc, name) {
  const det = state.curve === "det";
  const y = (value) => (det ? 1 - value : value);
  const found = [];
  if (roc.bands && !name) {
    const low = roc.fpr.map((rate, at) => [rate, y(roc.bands.tpr_low[at])]);
    const high = roc.fpr.map((rate, at) => [rate, y(roc.bands.tpr_high[at])]);
    found.push({ kind: "band", low, high });
  }
  found.push({ kind: "line", name, points: roc.fpr.map((rate, at) => [rate, y(roc.tpr[at])]) });
  return found;
}

let chart = null;
let scores = null;

function axes(roc) {
  const min = 10 ** Math.floor(Math.log10(least(roc)));
  const x = { scale: "log", min, max: 1, label: state.curve === "det" ? "false match rate" : "false positive rate" };
  if (state.curve === "roc") return { x, y: { scale: "linear", min: 0, max: 1, label: "true positive rate" } };
  const misses = roc.tpr.map((rate) => 1 - rate).filter((rate) => rate > 0);
  const floor = 10 ** Math.floor(Math.log10(Math.max(Math.min(...misses, 0.1), 1e-5)));
  return { x, y: { scale: "log", min: floor, max: 1, label: "false non-match rate" } };
}

// Precision by recall, on which no rate is chosen: nothing is guaranteed of it.
async function buildPrecision() {
  chart = null;
  try {
    state.pr ??= await api("GET", `${base}/pr?points=${CURVE_POINTS}`);
  } catch (error) {
    $("#curve").replaceChildren(el("p", { class: "note bad" }, clean(error)));
    return;
  }
  if (state.curve !== "pr") return;
  const axis = (label) => ({ scale: "linear", min: 0, max: 1, label });
  const words = `Precision and recall of ${card.dataset.model} version ${card.dataset.version} on held-out pairs`;
  const drawn = new Chart($("#curve"), { x: axis("recall"), y: axis("precision"), words });
  drawn.set([{ kind: "line", points: state.pr.recall.map((share, at) => [share, state.pr.precision[at]]) }]);
}

function build(roc) {
  $("#curve-legend").hidden = state.curve === "pr";
  if (state.curve === "pr") {
    buildPrecision();
    return;
  }
  const words = `${state.curve.toUpperCase()} of ${card.dataset.model} version ${card.dataset.version} on held-out pairs`;
  chart = new Chart($("#curve"), { ...axes(roc), words });
  if (calibration) {
    const choose = (event) => event.buttons === 1 && choseRate(chart.under(event));
    chart.drawing.addEventListener("pointerdown", choose);
    chart.drawing.addEventListener("pointermove", choose);
  }
  drawCurve();
}

function drawCurve() {
  if (!chart) return;
  const shown = [];
  const floor = smallest(state.calibration, $("#confidence")?.value || 0.95);
  if (floor) shown.push({ kind: "region", from: chart.x.min, to: floor });
  if (state.curve === "roc") shown.push({ kind: "chance", points: Array.from({ length: 41 }, (_, at) => chart.x.min ** (1 - at / 40)).map((rate) => [rate, rate]) });
  if (state.other) shown.push(...parts(state.other, "other"));
  shown.push(...parts(state.roc));
  chart.set([...shown, ...curveMarks()]);
}

function curveMarks() {
  if (!calibration || !state.point) return [];
  const tpr = state.point?.tpr;
  return [{ kind: "cut", x: state.fpr, at: state.point?.observed_fpr, y: tpr === null || tpr === undefined ? null : state.curve === "det" ? 1 - tpr : tpr }];
}

// How scores are spread, from the survival functions that the ROC is made of.
function histogram(thresholds, survival, edges) {
  const above = (cut) => {
    let low = 0, high = thresholds.length; // descending: the first threshold at or below the cut
    while (low < high) {
      const middle = (low + high) >> 1;
      if (thresholds[middle] > cut) low = middle + 1;
      else high = middle;
    }
    if (low === 0) return survival[0];
    if (low === thresholds.length) return survival[survival.length - 1];
    const span = thresholds[low - 1] - thresholds[low];
    const share = span > 0 ? (cut - thresholds[low]) / span : 0;
    return survival[low] + share * (survival[low - 1] - survival[low]);
  };
  return edges.slice(0, -1).map((edge, at) => [edge, Math.max(above(edge) - above(edges[at + 1]), 0)]);
}

// What is shown reaches far enough below the scores of positive pairs to see the overlap; a long tail of negative pairs is cut.
function shownFrom(roc) {
  const high = roc.thresholds[0], low = roc.thresholds[roc.thresholds.length - 1];
  const lowest = roc.thresholds[roc.tpr.findIndex((share) => share >= 0.99)] ?? low;
  const from = Math.max(low, lowest - 4 * (high - lowest));
  const at = roc.thresholds.findIndex((cut) => cut <= from);
  const beyond = 1 - roc.fpr[at];
  return beyond < 0.001 ? { low, beyond: 0 } : { low: from, beyond };
}

function buildScores(roc) {
  const high = roc.thresholds[0];
  const { low, beyond } = shownFrom(roc);
  const edges = Array.from({ length: 61 }, (_, at) => low + ((high - low) * at) / 60);
  const same = histogram(roc.thresholds, roc.tpr, edges), different = histogram(roc.thresholds, roc.fpr, edges);
  const top = Math.max(...same.map(([, share]) => share), ...different.map(([, share]) => share));
  scores = new Chart($("#scores"), {
    x: { scale: "linear", min: low, max: high, label: beyond ? `score (${percent(beyond)} of negative pairs score lower)` : "score", format: (value) => number(value, 4) },
    y: { scale: "linear", min: 0, max: top * 1.05, label: "share of pairs" },
    height: 0.5,
    words: "How the scores of same and of different held-out pairs are spread",
  });
  scores.set([{ kind: "area", name: "different", points: different }, { kind: "area", name: "same", points: same }, ...scoreMarks()]);
}

function scoreMarks() {
  const { threshold, fnr_threshold: lower } = state.point ?? {};
  const between = lower === undefined || lower === null ? [] : [{ kind: "review", from: lower, to: threshold }];
  return [...between, ...between.map(() => ({ kind: "cut", x: lower })), ...(threshold === undefined ? [] : [{ kind: "cut", x: threshold }])];
}

// What follows the slider in both charts.
function mark() {
  chart?.mark(curveMarks());
  scores?.mark(scoreMarks());
}

// ---------------------------------------------------------------- the point

function choseRate(fpr, from) {
  if (!(fpr > 0 && fpr < 1)) return;
  state.fpr = Number(fpr.toPrecision(2));
  if (from !== "slider") $("#rate").value = Math.log10(state.fpr);
  $("#rate").setAttribute("aria-valuetext", percent(state.fpr));
  if (from !== "number") $("#rate-number").value = number(100 * state.fpr, 3);
  moved();
}

function choseMisses(fnr, from) {
  if (!(fnr > 0 && fnr < 1)) return;
  state.fnr = Number(fnr.toPrecision(2));
  if (from !== "slider") $("#miss").value = Math.log10(state.fnr);
  $("#miss").setAttribute("aria-valuetext", percent(state.fnr));
  if (from !== "number") $("#miss-number").value = number(100 * state.fnr, 3);
  moved();
}

// The line follows at once; the service is asked for the rest when the slider rests.
function moved() {
  mark();
  clearTimeout(state.timer);
  state.timer = setTimeout(ask, ASK_AFTER_MS);
}

function question() {
  const asked = new URLSearchParams({ fpr: state.fpr, confidence: $("#confidence").value });
  if ($("#method").value !== "auto") asked.set("method", $("#method").value);
  if (state.fnr !== null) asked.set("fnr", state.fnr);
  return asked;
}

async function ask() {
  state.asking?.abort();
  state.asking = new AbortController();
  const { fpr, fnr } = state;
  try {
    state.point = await api("GET", `${base}/operating-point?${question()}`, undefined, { signal: state.asking.signal });
    reported(state.point);
  } catch (error) {
    if (error.name === "AbortError") return;
    state.point = null;
    refused(error, fpr, fnr);
  }
  mark();
  snippet();
  const line = $(".legend .cutline");
  if (line) {
    line.hidden = !state.point;
    line.textContent = state.point?.guarantee === "none" ? "estimated" : "guaranteed";
  }
}

function reported(point) {
  const sure = `with ${percent(point.confidence)} confidence`;
  const opening = point.guarantee === "none" ? ["Estimated to match ", el("strong", {}, percent(point.fpr)), " of negative pairs, without a guarantee"] : ["Stays below ", el("strong", {}, percent(point.fpr)), ` false matches ${sure}${point.guarantee === "asymptotic" ? " (asymptotic)" : ""}`];
  const interval = point.tpr_interval ? el("span", { class: "quiet" }, ` (${point.tpr_interval.map((rate) => percent(rate)).join(" to ")})`) : "";
  const recognizes = point.tpr === null ? [". How many positive pairs it recognizes is not known: none was held out."] : [", recognizes ", el("strong", {}, percent(point.tpr)), interval, " of positive pairs."];
  const missed = point.fnr === null || point.fnr === undefined ? [] : [" Calls fewer than ", el("strong", {}, percent(point.fnr)), " of positive pairs different. To review: ", el("strong", {}, percent(point.review_same ?? 0)), " of same and ", el("strong", {}, percent(point.review_different)), " of negative pairs."];
  $("#said").replaceChildren(...opening, ...recognizes, ...missed);
  $("#short").hidden = true;
  const people = point.protocol === "open-set" ? "people" : "samples";
  const rows = [
    ["Threshold", `match above ${number(point.threshold)}`],
    ["Different", missed.length ? `at ${number(point.fnr_threshold)} or below` : null],
    ["Upper bound", typeof point.fpr_upper_bound === "number" ? `${percent(point.fpr_upper_bound)} ${sure}` : "none"],
    ["Observed", point.observed_fpr === undefined ? null : `${percent(point.observed_fpr)} on the calibration pairs`],
    ["Method", point.method ?? null],
    ["Assumes", (point.assumes ?? []).map((one) => `${one.assumption} (${one.status}${one.by ? `: ${one.by}` : ""})`).join(", ")],
    ["Holds among", point.population?.classes ? `these ${count(point.population.classes)} classes` : null],
    ...(point.groups ?? []).map((one) => [`Within ${one.group}`, `${one.fpr === null ? "no negative pairs" : `${percent(one.fpr)} observed`}${one.tpr === null ? "" : `, recognizes ${percent(one.tpr)}`}, ${one.needs ? `not guaranteed: ${count(one.needs)} people more` : one.guarantee} (${count(one.n_units)} people)`]),
    ["Means", point.meaning ?? null],
    ["Imported", point.imported ? `the calibration came in a file (${point.imported})` : null],
    ["Based on", `${count(point.n_units)} ${people}, ${count(point.n_negative_pairs)} negative pairs (${point.protocol})${point.n_strangers ? `; ${count(point.n_strangers)} of them without labels` : ""}`],
  ];
  $("#facts").replaceChildren(...rows.filter(([, value]) => value).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function refused(error, fpr, fnr) {
  const both = fnr === null ? [] : [" false positives together with ", el("strong", {}, percent(fnr)), " false negatives"];
  $("#said").replaceChildren("These data cannot guarantee ", el("strong", {}, percent(fpr)), ...both, ".");
  const note = $("#short");
  note.replaceChildren(clean(error), ...waysOut(error));
  note.hidden = false;
  $("#facts").replaceChildren();
}

function snippet() {
  const place = $("#snippet");
  if (!place) return;
  $("[data-copies=snippet]").disabled = !state.point;
  if (!state.point) {
    place.textContent = "These data cannot guarantee this rate: choose another, or a way out above.";
    return;
  }
  const model = `${card.dataset.model}:${card.dataset.version}`;
  const keyed = card.dataset.keyed === "1";
  const { features, field } = card.dataset;
  const asked = question();
  if (state.language === "curl") {
    place.textContent = [
      `curl '${url}/match?${asked}' \\`,
      ...(keyed ? ['  -H "X-API-Key: $PAIRMARK_API_KEY" \\'] : []),
      "  -H 'Content-Type: application/json' \\",
      `  -d '{"model": "${model}", "left": LEFT, "right": RIGHT}'`,
      "",
      `# LEFT, RIGHT: ${field ? `records such as {"${field}": ..}, or lists of records` : `vectors of ${features} numbers, or lists of such vectors`}`,
    ].join("\n");
  } else {
    const method = $("#method").value === "auto" ? "" : `, method="${$("#method").value}"`;
    place.textContent = [
      "from pairmark.client import Client",
      "",
      `client = Client("${url}"${keyed ? ', api_key=os.environ["PAIRMARK_API_KEY"]' : ""})`,
      `answer = client.match(left, right, fpr=${state.fpr}${state.fnr === null ? "" : `, fnr=${state.fnr}`}, confidence=${$("#confidence").value}${method}, model="${model}")`,
      `# left, right: ${field ? `lists of records such as {"${field}": ..}` : `arrays of shape (n, ${features})`}`,
    ].join("\n");
    if (keyed) place.textContent = `import os\n${place.textContent}`;
  }
}

// ---------------------------------------------------------------- wiring

async function start() {
  try {
    [state.roc, state.calibration] = await Promise.all([api("GET", `${base}/roc?points=${CURVE_POINTS}`), calibration ? api("GET", `/calibrations/${calibration}`).catch(() => null) : null]);
  } catch (error) {
    $("#curve").replaceChildren(el("p", { class: "note bad" }, clean(error)));
    return;
  }
  build(state.roc);
  buildScores(state.roc);
  if (calibration) {
    $("#rate").min = Math.log10(chart.x.min);
    choseRate(state.fpr);
  }
}

for (const button of $$("[data-curve]")) {
  button.addEventListener("click", () => {
    state.curve = button.dataset.curve;
    $$("[data-curve]").forEach((one) => one.setAttribute("aria-pressed", one === button));
    if (state.roc) build(state.roc);
  });
}

for (const button of $$("[data-language]")) {
  button.addEventListener("click", () => {
    state.language = button.dataset.language;
    $$("[data-language]").forEach((one) => one.setAttribute("aria-pressed", one === button));
    snippet();
  });
}

$("#other")?.addEventListener("change", async (event) => {
  const other = event.target.value;
  const legend = $("#other-legend");
  legend.hidden = !other;
  legend.textContent = `version ${other}`;
  state.other = other ? await api("GET", `/models/${encodeURIComponent(card.dataset.model)}/versions/${other}/roc?points=${CURVE_POINTS}`).catch(() => null) : null;
  drawCurve();
});

$("#rate")?.addEventListener("input", (event) => choseRate(10 ** Number(event.target.value), "slider"));
$("#rate-number")?.addEventListener("change", (event) => choseRate(Number(event.target.value.replace(",", ".").replace("%", "")) / 100, "number"));
$("#miss")?.addEventListener("input", (event) => choseMisses(10 ** Number(event.target.value), "slider"));
$("#miss-number")?.addEventListener("change", (event) => choseMisses(Number(event.target.value.replace(",", ".").replace("%", "")) / 100, "number"));
$("#three-way")?.addEventListener("change", (event) => {
  $("#miss-fields").hidden = $("#review-legend").hidden = !event.target.checked;
  // Only the finite-sample method bounds both rates.
  $("#method").value = "auto";
  $("#method").disabled = event.target.checked;
  drawCurve();
  if (event.target.checked) choseMisses(10 ** Number($("#miss").value));
  else {
    state.fnr = null;
    moved();
  }
});
// The region that cannot be guaranteed depends on both.
for (const id of ["confidence", "method"]) {
  $(`#${id}`)?.addEventListener("change", () => {
    drawCurve();
    choseRate(state.fpr);
  });
}

const sign = { "|x - x'|": (name) => `|Δ ${name}|`, "x + x'": (name) => `Σ ${name}`, "x x'": (name) => `Π ${name}` };

// A node's question in the features' own names; of a sum, the term that weighs most.
function asked(node) {
  const term = node.terms?.[0] ?? node;
  const name = (sign[term.map] ?? ((one) => (/^m(ax|in)/.test(term.map) ? `${term.map.slice(0, 3)}(${one})` : one)))(term.feature);
  return node.n_features > 1 ? `${name} and ${node.n_features - 1} more` : `${name} ≤ ${number(node.threshold, 4)}`;
}

// A cell as a line; below one that is split, its two children, the more similar one first.
function cell(tree, at) {
  const entry = tree.cells[at];
  const shares = `${percent(entry.tpr, 2)} of positive, ${percent(entry.fpr, 2)} of negative pairs`;
  if (entry.split === undefined) return el("li", {}, `${shares}: score ${number(entry.score, 4)}`);
  const below = el("details", { open: entry.depth < 2 }, el("summary", {}, `${shares}: ${asked(tree.nodes[entry.split])}`));
  below.append(el("ul", {}, cell(tree, entry.left), cell(tree, entry.right)));
  return el("li", {}, below);
}

$("#tree")?.addEventListener("toggle", async () => {
  const words = el("p", { class: "small quiet" }, "Of two branches the first is the more similar. |Δ a|: difference of a; Σ a: sum; Π a: product.");
  $("#tree .tree").replaceChildren(words, el("ul", {}, cell(await api("GET", `${base}/tree`), 0)));
}, { once: true });

start();
