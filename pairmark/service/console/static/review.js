// Reviews: make one, judge its pairs by button or key, and watch the bound fall.

import { api, say, segment } from "./api.js";
import { $, $$, count, el } from "./dom.js";

const SAYS = { same: true, different: false, unsure: null };
const KEYS = { s: "same", d: "different", "?": "unsure", n: "next", u: "undo" };
const AT_HAND = 10;

$("#new-review-form")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  try {
    const made = await api("POST", "/reviews", {
      source: { model: form.model.value },
      question: form.question.value,
      at_most: Number(form.at_most.value) / 100,
    });
    location.assign(`/console/reviews/${segment(made.id)}`);
  } catch (error) {
    say($("[data-problem]", form), error);
  }
});

const queue = $("#queue");
if (queue) start(queue, reviewed(queue));

// A review hands out pairs that nobody else has, and keeps what is said of them.
function reviewed(place) {
  const path = `/reviews/${segment(place.dataset.review)}`;
  return {
    async fill() {
      return (await api("GET", `${path}/next?n=${AT_HAND}`)).items;
    },
    async judge(item, word) {
      const now = await api("POST", `${path}/outcomes`, { outcomes: [{ item: item.item, same: SAYS[word] }] });
      $("#statement").textContent = now.statement;
      const facts = { expected_more: "–" };
      for (const name of ["judged", "waiting", "wrong", "expected_more"]) if (now[name] !== null) facts[name] = count(now[name]);
      for (const [name, words] of Object.entries(facts)) $$(`[data-fact="${name}"]`).forEach((one) => (one.textContent = words));
    },
    // The earlier pair is shown again, and a new judgement replaces the old one.
    async undo() {},
    nothing: "Nothing to judge: it is enough, all pairs are drawn, or the rest is with others.",
  };
}

function start(place, source) {
  const problem = $("[data-problem]", place);
  const undo = $('[data-says="undo"]', place);
  const later = new Set();
  let items = [];
  let judged = [];
  let busy = false;

  async function fill() {
    const found = await source.fill();
    items = [...found.filter((one) => !later.has(one.item)), ...found.filter((one) => later.has(one.item))];
    later.clear();
  }

  function show() {
    const item = items[0];
    for (const button of $$("[data-says]", place)) button.disabled = button === undo ? !judged.length : !item;
    const sides = $("#sides", place);
    if (!item) {
      sides.replaceChildren(el("p", {}, source.nothing));
      return;
    }
    sides.replaceChildren(side("Left", item.refs[0], item.left, item.right), side("Right", item.refs[1], item.right, item.left));
  }

  async function act(word) {
    if (busy || (word === "undo" ? !judged.length : !items.length)) return;
    busy = true;
    problem.hidden = true;
    try {
      if (word === "undo") {
        await source.undo();
        items.unshift(judged.pop());
      } else if (word === "next") {
        const item = items.shift();
        items.push(item);
        later.add(item.item);
      } else {
        await source.judge(items[0], word);
        judged.push(items.shift());
        if (!items.length) await fill();
      }
    } catch (error) {
      say(problem, error);
    }
    busy = false;
    show();
  }

  for (const button of $$("[data-says]", place)) button.addEventListener("click", () => act(button.dataset.says));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
    if ($(`[data-says="${KEYS[event.key]}"]`, place)) act(KEYS[event.key]);
  });
  fill().catch((error) => say(problem, error)).finally(show);
}

function side(title, ref, value, other) {
  const rows = value && !Array.isArray(value) && typeof value === "object"
    ? Object.entries(value).map(([name, cell]) => el("tr", other && shown(other[name]) !== shown(cell) ? { class: "differs" } : {}, el("th", { scope: "row" }, name), el("td", {}, shown(cell))))
    : [];
  const plain = Array.isArray(value) ? el("p", { class: "numbers" }, value.slice(0, 64).map((one) => Number(one).toPrecision(3)).join(" ")) : null;
  return el("div", { class: "side-of-pair" }, el("h3", {}, title), el("p", { class: "ref" }, ref ?? "no name was sent"), image(ref), rows.length ? el("table", {}, el("tbody", {}, ...rows)) : null, plain);
}

// Of the caller's own host, which alone the page's policy allows.
function image(ref) {
  const template = queue.dataset.images;
  return template && ref !== null ? el("img", { src: template.replace("{ref}", encodeURIComponent(ref)), alt: `Picture of ${ref}`, referrerpolicy: "no-referrer" }) : null;
}

const shown = (cell) => (cell === null || cell === undefined ? "–" : String(cell));
