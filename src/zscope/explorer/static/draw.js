// Drawing: observations, strips of observations, line charts, heat maps.

import { amount, dark, rgb, signed, textOn } from "./colour.js";
import { h, number } from "./core.js";

/** An element with a function show(data, others) that draws a picture, or a vector as a line,
 * and a function blank() that removes it where there is no answer: nothing out of date is shown.
 * `others` are more series to draw with a vector. */
export function observation(look, { size = 96, label = "", table = false } = {}) {
  const mark = (element, failed) => {
    element.classList.toggle("failed", failed);
    element.setAttribute("aria-label", failed ? `${label}: no answer` : label);
  };
  if (look.kind === "picture") {
    const canvas = h("canvas", { className: "picture", role: "img", "aria-label": label, width: look.shape[2], height: look.shape[1], style: { "--size": `${size}px` } });
    canvas.show = (data) => {
      paint(canvas, data);
      mark(canvas, false);
    };
    canvas.blank = () => {
      canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
      mark(canvas, true);
    };
    return canvas;
  }
  const element = h("div", { className: "row-plot", role: "img", "aria-label": label, style: { "--size": `${size}px` } });
  element.show = (data, others = []) => {
    // Of sound, a line for each channel.
    const channels = look.shape.length === 2 ? look.shape[0] : 1;
    const length = data.values.length / channels;
    const more = Array.from({ length: channels - 1 }, (_, k) => ({ values: data.values.slice((k + 1) * length, (k + 2) * length), className: "three", label: `channel ${k + 1}` }));
    const series = [{ values: data.values.slice(0, length), className: "one", label: "decoded" }, ...more, ...others];
    element.replaceChildren(lines(series, { low: look.low, high: look.high, width: size * 1.5, height: size, bare: !table }));
    if (table) element.append(numbers(series, look));
    mark(element, false);
  };
  element.blank = () => {
    element.replaceChildren(h("p", { className: "hint" }, "No answer"));
    mark(element, true);
  };
  return element;
}

/** Draw the bytes of a picture on a canvas. */
export function paint(canvas, data) {
  const { width, height, channels } = data;
  const raw = atob(data.bytes);
  const image = new ImageData(width, height);
  const to = image.data;
  for (let pixel = 0, from = 0, at = 0; pixel < width * height; pixel++, at += 4) {
    to[at] = raw.charCodeAt(from);
    to[at + 1] = channels === 3 ? raw.charCodeAt(from + 1) : to[at];
    to[at + 2] = channels === 3 ? raw.charCodeAt(from + 2) : to[at];
    to[at + 3] = 255;
    from += channels;
  }
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const palettes = new Map(); // by theme and kind: 255 colours as pixels, the middle one for 0

function palette(kind) {
  const key = `${dark()} ${kind}`;
  if (!palettes.has(key)) {
    const bytes = new Uint8ClampedArray(4 * 255);
    for (let k = 0; k < 255; k++) bytes.set([...(kind === "signed" ? signed(k / 127 - 1) : amount(k / 254)), 255], 4 * k);
    palettes.set(key, new Uint32Array(bytes.buffer));
  }
  return palettes.get(key);
}

/** Draw numbers on a canvas, one pixel each: `kind` "signed" from -most to most, or "amount" from 0. */
export function paintNumbers(canvas, values, width, height, { kind, most }) {
  const colours = palette(kind);
  const image = new ImageData(width, height);
  const to = new Uint32Array(image.data.buffer);
  for (let k = 0; k < width * height; k++) {
    const share = kind === "signed" ? (values[k] / most + 1) / 2 : values[k] / most;
    to[k] = colours[Math.round(254 * Math.min(1, Math.max(0, share)))];
  }
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** The values of several series as a table, with the names of features and in their own units. */
function numbers(series, { features: names, units }) {
  const text = (value, k) => (units ? String(Number((value * units.scale[k] + units.mean[k]).toPrecision(4))).replace("-", "−") : number(value, 3));
  const count = series[0].values.length;
  const rows = Math.min(count, 64);
  return h(
    "div",
    { className: "scroll" },
    h(
      "table",
      { className: "numbers" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "feature"), series.map((one) => h("th", { scope: "col", className: one.className }, one.label)))),
      h("tbody", {}, Array.from({ length: rows }, (_, k) => h("tr", {}, h("th", { scope: "row" }, names[k] ?? k), series.map((one) => h("td", {}, text(one.values[k], k)))))),
    ),
    count > rows ? h("p", { className: "hint" }, `The first ${rows} of ${count} features; the JSON has all of them.`) : null,
  );
}

/** Round numbers between low and high, for the ticks of an axis. */
export function ticks(low, high, count = 5) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const values = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) values.push(Math.abs(value) < step * 1e-6 ? 0 : value);
  return values;
}

export const tickText = (value) => String(Math.round(value * 1e6) / 1e6).replace("-", "−");

/** A line chart. Series: {values, x?, className, label}. */
export function lines(series, { low, high, width = 320, height = 180, bare = false, x = "", y = "", points = null } = {}) {
  const all = series.flatMap((one) => one.values);
  let bottom = Math.min(low ?? Infinity, ...all);
  let top = Math.max(high ?? -Infinity, ...all);
  if (!(top > bottom)) [bottom, top] = [bottom - 0.5, top + 0.5];
  const xs = series.map((one) => one.x ?? one.values.map((_, k) => k));
  const left = Math.min(...xs.flat());
  const right = Math.max(...xs.flat(), left + 1e-9);
  const box = bare ? { l: 3, r: 3, t: 4, b: 4 } : { l: y ? 56 : 42, r: 8, t: 8, b: x ? 34 : 20 };
  const px = (value) => box.l + ((value - left) / (right - left)) * (width - box.l - box.r);
  const py = (value) => height - box.b - ((value - bottom) / (top - bottom)) * (height - box.t - box.b);
  const svg = h("svg", { class: "lines", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
  if (!bare) {
    for (const value of ticks(bottom, top, 4)) {
      svg.append(h("line", { class: "rule", x1: box.l, x2: width - box.r, y1: py(value), y2: py(value) }));
      svg.append(h("text", { x: box.l - 6, y: py(value) + 4, "text-anchor": "end" }, tickText(value)));
    }
    for (const value of ticks(left, right, 5)) svg.append(h("text", { x: px(value), y: height - box.b + 15, "text-anchor": "middle" }, tickText(value)));
    if (x) svg.append(h("text", { x: (box.l + width - box.r) / 2, y: height - 4, "text-anchor": "middle", class: "axis" }, x));
    if (y) svg.append(h("text", { x: 0, y: 0, "text-anchor": "middle", class: "axis", transform: `translate(11 ${(height - box.b) / 2}) rotate(-90)` }, y));
  }
  if (bare && bottom < 0 && top > 0) svg.append(h("line", { class: "rule", x1: box.l, x2: width - box.r, y1: py(0), y2: py(0) }));
  const few = points ?? series[0].values.length <= 24;
  series.forEach((one, k) => {
    const places = one.values.map((value, i) => [px(xs[k][i]), py(value)]);
    svg.append(h("polyline", { class: `series ${one.className ?? ""}`, points: places.map((p) => p.map((v) => v.toFixed(1)).join(",")).join(" ") }));
    if (few) for (const [cx, cy] of places) svg.append(h("circle", { class: `point ${one.className ?? ""}`, cx, cy, r: 2.6 }));
  });
  return svg;
}

/** The legend of a line chart. */
export const legend = (entries) =>
  h("p", { className: "key" }, entries.map(([className, text]) => h("span", { className: `key-${className}` }, text)));

/** Observations in a row; with `onpick` each is a button. */
export function strip(look, observations, { size = 64, captions = [], onpick = null, label = "", marked = () => false } = {}) {
  return h(
    "ol",
    { className: "strip", "aria-label": label, style: { "--tile": `${look.kind === "picture" ? size : size * 1.5}px`, "--count": observations.length } },
    observations.map((one, k) => {
      const picture = observation(look, { size, label: `${label} ${captions[k] ?? k + 1}` });
      picture.show(one);
      const inside = [picture, captions[k] === undefined ? null : h("span", { className: "caption" }, captions[k])];
      const holder = onpick ? h("button", { type: "button", className: "tile", onclick: () => onpick(k) }, inside) : h("span", { className: "tile" }, inside);
      if (marked(k)) holder.classList.add("marked");
      return h("li", {}, holder);
    }),
  );
}

/** A heat map; the arrow keys move between its cells.
 *
 * `scale` is "amount" (0 to the largest value), "share" (0 to 1) or "signed" (± the largest). */
export function heat({ rows, columns, values, across, down, scale = "amount", marks = [], onpick, onlook, label, plain = false }) {
  const flat = values.flat().filter(Number.isFinite);
  const most = scale === "share" ? 1 : Math.max(0.05, ...flat.map(Math.abs)); // a matrix that is nearly 0 looks so
  const colour = (value) => (scale === "signed" || flat.some((v) => v < 0) ? signed(value / most) : amount(value / most));
  const numbered = columns.length <= 14;
  const long = columns.length > 4 && columns.some((name) => String(name).length > 7);
  const cells = [];
  const table = h("table", { className: `heat ${numbered ? "numbered" : columns.length > 40 ? "tiny" : ""} ${long ? "long" : ""}`, role: "grid", "aria-label": label });
  const header = h("tr", {}, h("td", { className: "corner" }), columns.map((name) => h("th", { scope: "col", className: marks.includes(name) ? "mark" : "", title: String(name) }, String(name))));
  table.append(h("caption", {}, h("span", { className: "across" }, across)), h("thead", {}, header));
  const body = h("tbody");
  rows.forEach((name, j) => {
    const row = h("tr", {}, h("th", { scope: "row", className: marks.includes(name) && !plain ? "mark" : "", title: String(name) }, String(name)));
    cells.push(
      columns.map((column, k) => {
        const value = values[j][k];
        const shade = colour(Number.isFinite(value) ? value : 0);
        const cell = h(
          "td",
          {
            role: "gridcell",
            tabIndex: -1,
            "aria-label": `${down} ${name}, ${across} ${column}: ${number(value, 3)}`,
            style: { background: rgb(shade), color: textOn(shade) },
            onmouseenter: () => onlook?.(j, k),
            onfocus: () => onlook?.(j, k),
            onclick: () => onpick?.(j, k),
          },
          numbered ? number(value, 2) : "",
        );
        row.append(cell);
        return cell;
      }),
    );
    body.append(row);
  });
  if (cells.length && cells[0].length) cells[0][0].tabIndex = 0;
  table.append(body);
  table.addEventListener("keydown", (event) => {
    const j = cells.findIndex((row) => row.includes(document.activeElement));
    if (j < 0) return;
    const k = cells[j].indexOf(document.activeElement);
    const moves = { ArrowUp: [j - 1, k], ArrowDown: [j + 1, k], ArrowLeft: [j, k - 1], ArrowRight: [j, k + 1], Home: [j, 0], End: [j, cells[j].length - 1] };
    if (event.key === "Enter" || event.key === " ") onpick?.(j, k);
    else if (!moves[event.key]) return;
    else {
      const next = cells[moves[event.key][0]]?.[moves[event.key][1]];
      if (next) {
        document.activeElement.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      }
    }
    event.preventDefault();
  });
  table.select = (j, k) => {
    table.querySelector("td.selected")?.classList.remove("selected");
    cells[j]?.[k]?.classList.add("selected");
  };
  return h("div", { className: "heat-holder" }, h("span", { className: "down" }, down), h("div", { className: "scroll" }, table));
}

/** A colour bar with its range. */
export function colourBar(kind, low, high, text) {
  const canvas = h("canvas", { className: "colour-bar", width: 128, height: 1, role: "img", "aria-label": `${text}: from ${number(low)} to ${number(high)}` });
  const context = canvas.getContext("2d");
  for (let k = 0; k < 128; k++) {
    const share = k / 127;
    context.fillStyle = rgb(kind === "signed" ? signed(2 * share - 1) : amount(share));
    context.fillRect(k, 0, 1, 1);
  }
  return h("div", { className: "legend" }, h("span", {}, number(low)), canvas, h("span", {}, number(high)), h("span", { className: "hint" }, text));
}
