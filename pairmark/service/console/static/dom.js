// Small helpers every script uses: elements, numbers in words, one way to say what went wrong.

export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const plain = (value, digits) => String(Number(value.toPrecision(digits)));

export function percent(rate, digits = 3) {
  const shown = 100 * rate;
  if (shown !== 0 && Math.abs(shown) < 1e-6) return `${shown.toExponential(0)}\u00a0%`;
  return `${shown.toLocaleString("en", { maximumSignificantDigits: digits, useGrouping: false })}\u00a0%`;
}

export const number = (value, digits = 6) => plain(value, digits);
export const count = (value) => Number(value).toLocaleString("en");

export function toast(words) {
  $(".toast")?.remove();
  const note = el("div", { class: "toast", role: "status" }, words);
  document.body.append(note);
  setTimeout(() => note.remove(), 6000);
}
