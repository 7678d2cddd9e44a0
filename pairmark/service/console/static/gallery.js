// Making, searching, verifying, importing and erasing. Every request is one of the public API.

import { api, ApiError, say, segment, sendFile } from "./api.js";
import { $, $$, count, el, number, percent, toast } from "./dom.js";

const { base, dimension } = $("#gallery")?.dataset ?? {};
const TYPES = { npz: "application/x-npz", csv: "text/csv", parquet: "application/vnd.apache.parquet", json: "application/json" };

function on(id, work) {
  const form = $(id);
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const problem = $("[data-problem]", form) ?? $("[data-problem]", form.parentElement);
    if (problem) problem.hidden = true;
    const button = $("button[type=submit]", form);
    if (button) button.disabled = true;
    try {
      await work(new FormData(form), form);
    } catch (error) {
      problem ? say(problem, error) : toast(error.message);
    } finally {
      if (button) button.disabled = false;
    }
  });
}

// Numbers or a record as they were pasted, or an enrolled item's own vector.
async function vector(text) {
  if (text.trim().startsWith("{")) {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new ApiError(0, { detail: `the record is not JSON: ${error.message}` });
    }
  }
  const words = text.trim().replace(/^\[|\]$/g, "");
  const numbers = words.split(/[\s,;]+/).filter(Boolean).map(Number);
  if (numbers.length && numbers.every(Number.isFinite) && (numbers.length > 1 || dimension === "1")) {
    if (numbers.length !== Number(dimension)) throw new ApiError(0, { detail: `${numbers.length} numbers; expected ${dimension}` });
    return numbers;
  }
  return (await api("GET", `${base}/items/${segment(text.trim())}`)).vector;
}

const rate = (text) => (String(text).trim() ? Number(String(text).replace(",", ".")) / 100 : null);

on("#new-gallery-form", async (form) => {
  await api("PUT", `/galleries/${segment(form.get("name"))}`, { model: form.get("model") });
  location.assign(`/console/galleries/${segment(form.get("name"))}`);
});

on("#search", async (form) => {
  const body = { queries: [await vector(form.get("query"))], k: Number(form.get("k")) || 10 };
  if (rate(form.get("fpir")) !== null) body.fpir = rate(form.get("fpir"));
  if (form.get("group_by")) body.group_by = "subject";
  const answer = await api("POST", `${base}/search`, body);
  const hits = answer.results[0];
  const point = answer.operating_point;
  const said = point ? el("p", { class: "promise" }, hits.length ? `${hits.length} ${hits.length === 1 ? "match" : "matches"}` : "Unknown: nobody enrolled here matches", el("span", { class: "quiet small" }, ` at ${percent(body.fpir)} of searches with a false match, threshold ${number(point.threshold)}`)) : el("p", { class: "quiet" }, "The nearest, match or not:");
  const rows = hits.map((hit) => el("tr", {}, el("th", { scope: "row" }, hit.id), el("td", {}, hit.subject ?? "–"), el("td", { class: "number" }, number(hit.score))));
  $("#found").replaceChildren(said, ...(answer.warning ? [el("p", { class: "note warn" }, answer.warning)] : []), ...(hits.length ? [el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Id"), el("th", { scope: "col" }, "Subject"), el("th", { scope: "col", class: "number" }, "Score"))), el("tbody", {}, rows)))] : []));
});

on("#verify", async (form) => {
  const answer = await api("POST", `${base}/subjects/${segment(form.get("subject"))}/verify?fpr=${rate(form.get("fpr"))}`, { probe: await vector(form.get("probe")) });
  const nearest = answer.aggregation ? `the person as a whole (${answer.aggregation}), nearest item ${answer.id}` : `best item ${answer.id}`;
  const compared = answer.score === undefined ? nearest : `score ${number(answer.score)} with ${nearest}`;
  $("#verified").replaceChildren(
    el("p", { class: "promise" }, el("span", { class: `tag ${answer.match ? "match" : "different"}` }, answer.match ? "match" : "no match"), ` ${compared}, threshold ${number(answer.operating_point.threshold)}`),
    el("p", { class: "quiet small" }, `${answer.items} items compared. ${typeof answer.fpr_upper_bound === "number" ? `Somebody else is accepted at most ${percent(answer.fpr_upper_bound)} of the time.` : answer.operating_point.meaning}${answer.warning ? ` ${answer.warning}` : ""}`),
  );
});

on("#import", async (form) => {
  const file = form.get("file");
  const type = TYPES[file.name.split(".").pop().toLowerCase()];
  if (!type) throw new ApiError(0, { detail: `${file.name}: expected .npz, .csv, .parquet or .json` });
  const bar = el("progress", { max: 1, value: 0, "aria-label": "Upload" });
  const place = $("#import-progress");
  place.replaceChildren(el("p", { class: "small quiet" }, `Importing ${file.name}…`), bar);
  try {
    const stored = await sendFile("PUT", `${base}/items`, file, (share) => (bar.value = share), type);
    place.replaceChildren(el("p", { class: "note good" }, `${count(stored.upserted)} items enrolled${stored.n_errors ? `, ${count(stored.n_errors)} rows refused` : ""}. `, el("a", { href: location.pathname }, "Show them")), ...stored.errors.slice(0, 10).map((error) => el("p", { class: "small bad" }, `Row ${error.row}: ${error.detail}`)));
  } catch (error) {
    place.replaceChildren(...(error.problem?.errors ?? []).slice(0, 10).map((one) => el("p", { class: "small bad" }, `Row ${one.row}: ${one.detail}`)));
    throw error;
  }
});
$("#import input")?.addEventListener("change", () => $("#import").requestSubmit());

function receipt(erased) {
  const facts = [
    ["Erased", `${count(erased.items)} item${erased.items === 1 ? "" : "s"}, at ${erased.erased_at}`],
    ["Index files", `${erased.index_blocks} removed with them`],
    ["Database", `${erased.database}: ${erased.database_complete ? "its files no longer hold the bytes" : "its files still hold the bytes"}`],
    ["Still to come", erased.pending.join("; ") || "nothing"],
  ];
  $("#receipt").replaceChildren(el("p", { class: "note good" }, `Receipt for ${erased.subject ?? erased.id}`), el("dl", { class: "facts" }, facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
  $("#receipt").scrollIntoView({ block: "nearest" });
}

on("#erase", async (form) => {
  const subject = form.get("subject");
  if (!window.confirm(`Erase everything of ${subject}? This cannot be undone.`)) return;
  receipt(await api("POST", `${base}/erase`, { subject }));
  $$("tbody tr").filter((row) => row.cells[1]?.textContent === subject && row.closest("section")?.getAttribute("aria-labelledby") === "items-title").forEach((row) => row.remove());
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.searchItem) {
    $("#query").value = button.dataset.searchItem;
    $("#search").requestSubmit();
    $("#search").scrollIntoView({ block: "nearest" });
  }
  if (button?.dataset.eraseItem && window.confirm(`Erase ${button.dataset.eraseItem}? This cannot be undone.`)) {
    try {
      receipt(await api("POST", `${base}/erase`, { id: button.dataset.eraseItem }));
      button.closest("tr").remove();
    } catch (error) {
      toast(error.message);
    }
  }
});
