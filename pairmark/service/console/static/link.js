// A link job: downloads, what a higher cut would leave, and the remedy where labels are needed.

import { api, segment } from "./api.js";
import { $, $$, count, percent } from "./dom.js";

const WAIT_MS = 1500;

for (const link of $$("[data-download]")) {
  link.addEventListener("click", async (event) => {
    event.preventDefault();
    const answer = await fetch(link.href, { headers: { accept: "text/csv" }, credentials: "same-origin" });
    const saved = document.createElement("a");
    saved.href = URL.createObjectURL(await answer.blob());
    saved.download = link.dataset.download;
    saved.click();
    URL.revokeObjectURL(saved.href);
  });
}

const slider = $("#cut");
if (slider) {
  const rows = $$("[data-cut]");
  const show = () => {
    const { cut, links, estimate } = rows[slider.value].dataset;
    $("#cut-says").textContent = `above ${cut}: ${count(Number(links))} links, ${percent(Number(estimate))} of them false as the model has it`;
    $("#cut-at").value = cut;
    $("#cut-again").disabled = slider.value === "0";
    rows.forEach((row, at) => row.classList.toggle("quiet", at < Number(slider.value)));
  };
  slider.addEventListener("input", show);
  show();
}

const remedy = $("[data-remedy]");
remedy?.addEventListener("click", async () => {
  const { remedy: review, tables, unique } = remedy.dataset;
  const name = `labels-${review.slice(0, 8)}`;
  const state = (text) => ($("#remedy-state").textContent = text);
  remedy.disabled = true;
  try {
    state("Making a dataset");
    const dataset = await api("POST", `/reviews/${segment(review)}/dataset`, { name });
    let job = await api("POST", "/jobs", { learner: "record-trees", dataset: `${dataset.name}:${dataset.version}`, model: name, promote: true });
    while (job.state === "queued" || job.state === "running") {
      state(`Training: ${percent(job.progress)}`);
      await new Promise((done) => setTimeout(done, WAIT_MS));
      job = await api("GET", `/jobs/${segment(job.id)}`);
    }
    if (job.state !== "succeeded") throw new Error(job.error?.detail ?? `training was ${job.state}`);
    const links = await api("POST", "/links", { tables: tables.split(" "), ...(unique ? { unique: unique.split(" ") } : {}), model: name });
    location.assign(`/console/links/${segment(links.id)}`);
  } catch (error) {
    state(error.message);
    remedy.disabled = false;
  }
});
