// A line chart as SVG: linear and logarithmic axes, bands, hatched regions, a vertical cut. It redraws when its place
// changes width, and takes its colours from the style sheet. Cuts and review regions are marks: they follow a slider, so
// they are drawn by themselves, without a look at the layout.

import { percent, svg } from "./dom.js";

const MARGIN = { top: 10, right: 12, bottom: 42, left: 54 };

const MARKS = new Set(["cut", "review"]);

const scales = {
  linear: (value) => value,
  log: (value) => Math.log10(value),
};

function ticks({ scale, min, max, format }) {
  const found = [];
  if (scale === "log") {
    for (let power = Math.ceil(Math.log10(min) - 1e-9); power <= Math.log10(max) + 1e-9; power += 1) found.push(10 ** power);
  } else {
    const rough = (max - min) / 5;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * unit).find((size) => size >= rough);
    for (let at = Math.ceil(min / step - 1e-9) * step; at <= max + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  }
  return found.map((at) => [at, (format || percent)(at)]);
}

export class Chart {
  // x, y: { scale: "linear" | "log", min, max, label, format? }; words: what the chart shows, for those who cannot see it.
  constructor(place, { x, y, height = 0.62, words }) {
    Object.assign(this, { place, x, y, ratio: height, words, parts: [], marks: [], width: 0 });
    this.drawing = svg("svg", { role: "img", "aria-label": words });
    place.replaceChildren(this.drawing);
    new ResizeObserver(() => {
      if (place.clientWidth === this.measured) return;
      this.measured = place.clientWidth;
      this.draw();
    }).observe(place);
  }

  set(parts) {
    this.parts = parts.filter((part) => !MARKS.has(part.kind));
    this.marks = parts.filter((part) => MARKS.has(part.kind));
    this.measured ??= this.place.clientWidth;
    this.draw();
  }

  // Move the marks; everything else stays as it is drawn.
  mark(marks) {
    this.marks = marks;
    if (this.over) this.drawMarks();
  }

  drawMarks() {
    const drawn = (kind) => this.marks.filter((part) => part.kind === kind).flatMap((part) => this[kind](part));
    this.between.replaceChildren(...drawn("review"));
    this.over.replaceChildren(...drawn("cut"));
  }

  at(axis, value) {
    const { scale, min, max } = this[axis];
    const turn = scales[scale];
    const share = (turn(Math.min(Math.max(value, min), max)) - turn(min)) / (turn(max) - turn(min));
    const { left, right, top, bottom } = MARGIN;
    return axis === "x" ? left + share * (this.width - left - right) : this.height - bottom - share * (this.height - top - bottom);
  }

  // The value under a pointer.
  under(event) {
    const box = this.drawing.getBoundingClientRect();
    const { left, right } = MARGIN;
    const share = Math.min(Math.max((event.clientX - box.left - left) / (box.width - left - right), 0), 1);
    const { scale, min, max } = this.x;
    return scale === "log" ? 10 ** (Math.log10(min) + share * Math.log10(max / min)) : min + share * (max - min);
  }

  draw() {
    this.width = Math.max(this.measured, 240);
    this.height = Math.round(Math.min(Math.max(this.width * this.ratio, 210), 460));
    const { width, height } = this;
    const { left, right, top, bottom } = MARGIN;
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const pattern = svg("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("line", { class: "hatch-line", y2: 7 }));
    const inside = svg("clipPath", { id: `inside-${this.place.id}` }, svg("rect", { x: left, y: top, width: width - left - right, height: height - top - bottom }));
    const axes = svg("g");
    let last = -Infinity;
    for (const [value, label] of ticks(this.x)) {
      const at = this.at("x", value);
      axes.append(svg("line", { class: "grid-line", x1: at, x2: at, y1: top, y2: height - bottom }));
      if (at - last < 46 || at > width - 14) continue;
      last = at;
      axes.append(svg("text", { x: at, y: height - bottom + 16, "text-anchor": "middle" }, label));
    }
    for (const [value, label] of ticks(this.y)) {
      const at = this.at("y", value);
      axes.append(svg("line", { class: "grid-line", x1: left, x2: width - right, y1: at, y2: at }));
      axes.append(svg("text", { x: left - 7, y: at + 4, "text-anchor": "end" }, label));
    }
    axes.append(svg("text", { class: "axis", x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, this.x.label));
    if (this.y.label) axes.append(svg("text", { class: "axis", x: 12, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(top + height - bottom) / 2})` }, this.y.label));
    const shapes = svg("g", { "clip-path": `url(#inside-${this.place.id})` });
    this.between = svg("g", { "clip-path": `url(#inside-${this.place.id})` });
    this.over = svg("g");
    for (const part of this.parts) shapes.append(...this[part.kind](part));
    this.drawMarks();
    this.drawing.replaceChildren(svg("defs", {}, pattern, inside), axes, this.between, shapes, svg("path", { class: "frame-line", d: `M${left},${top}V${height - bottom}H${width - right}` }), this.over);
  }

  line({ points, name }) {
    return [svg("path", { class: `curve ${name || ""}`, d: this.steps(points) })];
  }

  chance({ points }) {
    return [svg("path", { class: "chance", d: `M${points.map(([x, y]) => `${this.at("x", x)},${this.at("y", y)}`).join("L")}` })];
  }

  // Points as a path whose y changes at each x; those that fall on one pixel are drawn once.
  steps(points) {
    let path = "", lastX = NaN, lastY = NaN;
    for (const [x, y] of points) {
      const px = Math.round(this.at("x", x) * 2) / 2, py = Math.round(this.at("y", y) * 2) / 2;
      if (px === lastX && py === lastY) continue;
      path += path ? `${px !== lastX ? `H${px}` : ""}${py !== lastY ? `V${py}` : ""}` : `M${px},${py}`;
      lastX = px;
      lastY = py;
    }
    return path;
  }

  band({ low, high, name }) {
    if (!low.length) return [];
    const back = low.map(([x, y]) => [this.at("x", x), this.at("y", y)]).reverse();
    const steps = back.map(([x, y], at) => (at ? `V${y}H${x}` : `L${x},${y}`)).join("");
    return [svg("path", { class: `area ${name || ""}`, d: `${this.steps(high)}${steps}Z` })];
  }

  area({ points, name }) {
    const floor = this.at("y", this.y.min);
    return [svg("path", { class: `area ${name || ""}`, d: `M${this.at("x", points[0][0])},${floor}${this.steps(points).replace("M", "L")}V${floor}Z` }), svg("path", { class: `curve ${name || ""}`, d: this.steps(points) })];
  }

  region({ from, to }) {
    const start = this.at("x", from);
    return [svg("rect", { class: "unsupported", x: start, y: MARGIN.top, width: Math.max(this.at("x", to) - start, 0), height: this.height - MARGIN.top - MARGIN.bottom })];
  }

  // Between two thresholds.
  review({ from, to }) {
    const start = this.at("x", from);
    return [svg("rect", { class: "review", x: start, y: MARGIN.top, width: Math.max(this.at("x", to) - start, 0), height: this.height - MARGIN.top - MARGIN.bottom })];
  }

  // A vertical line at x; with y a dot, which may lie at another x: what was seen, where the line is what is guaranteed.
  cut({ x, y, at = x }) {
    const line = this.at("x", x);
    const parts = [svg("line", { class: "cut", x1: line, x2: line, y1: MARGIN.top, y2: this.height - MARGIN.bottom })];
    if (y === undefined || y === null) return parts;
    const [px, py] = [this.at("x", at), this.at("y", y)];
    if (Math.abs(px - line) > 6) parts.push(svg("line", { class: "cut price", x1: px, x2: line, y1: py, y2: py }));
    return [...parts, svg("circle", { class: "dot", cx: px, cy: py, r: 5 })];
  }
}
