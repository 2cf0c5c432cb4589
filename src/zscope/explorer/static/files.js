// Files of what a view shows: an SVG of its panel, with texts as texts, a PNG, and tables as CSV.

import { css } from "./colour.js";

const SKIP = ".toolbar, .busy, .instructions, .card, .choices, details:not([open])";
const PAD = 12;

let former = null; // the address of the file before, which the browser has read by now

/** Offer a file to the browser. */
export function save(name, type, content) {
  if (former) URL.revokeObjectURL(former);
  const link = document.createElement("a");
  link.href = former = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
}

/** Comma-separated values of {columns, rows}. */
export function csvOf({ columns, rows }) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

/** A PNG of an SVG, twice as large where there is room. */
export async function pngOf({ svg, width, height }) {
  const scale = Math.min(2, 8000 / Math.max(width, height));
  const picture = new Image();
  const bytes = new TextEncoder().encode(svg);
  let text = "";
  for (let k = 0; k < bytes.length; k += 8192) text += String.fromCharCode(...bytes.subarray(k, k + 8192));
  picture.src = `data:image/svg+xml;base64,${btoa(text)}`;
  await picture.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
  const paper = canvas.getContext("2d");
  paper.scale(scale, scale);
  paper.drawImage(picture, 0, 0, width, height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

const escape = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
const isSeen = (colour) => colour !== "transparent" && !/^rgba\(.*, ?0\)$|\/ ?0\)$/.test(colour);
const round = (value) => Math.round(value * 100) / 100;

/** What an element shows, as {svg, width, height}. */
export function svgOf(root) {
  const origin = root.getBoundingClientRect();
  const parts = [];
  let [left, top, right, bottom] = [Infinity, Infinity, 0, 0];
  const place = (box) => {
    const [x, y] = [box.left - origin.left, box.top - origin.top];
    return { x: round(x), y: round(y), width: round(box.width), height: round(box.height) };
  };
  const add = (tag, attributes, content = "") => parts.push(tagOf(tag, attributes, content));
  /** Make room for what is drawn: there may be less above it than on the page. */
  const reach = (box) => {
    [left, top] = [Math.min(left, box.x), Math.min(top, box.y)];
    [right, bottom] = [Math.max(right, box.x + box.width), Math.max(bottom, box.y + box.height)];
    return box;
  };

  function visit(element) {
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (element.matches(SKIP) || style.display === "none" || style.visibility === "hidden" || element.hidden) return;
    if (element.matches("button:not(.tile, .chip, .link)") && !element.querySelector("canvas, svg")) return;
    if (element.matches(".visually-hidden, input[type=radio], input[type=checkbox]")) return;
    const opacity = Number(style.opacity);
    if (opacity < 1) parts.push(`<g opacity="${opacity}">`);
    if (element instanceof SVGElement) parts.push(copyOf(element, reach(place(box))));
    else if (element instanceof HTMLCanvasElement) drawCanvas(element, style, reach(place(box)));
    else if (element.matches("input[type=range]")) drawRange(element, reach(place(box)));
    else if (element.matches("input, select")) drawText(element.matches("select") ? (element.selectedOptions[0]?.textContent ?? "") : element.value, style, reach(place(box)));
    else if (element.matches("meter")) drawMeter(element, reach(place(box)));
    else {
      drawBox(style, place(box));
      drawMark(element, place(box));
      for (const child of element.childNodes) {
        if (child instanceof Element) visit(child);
        else if (child.nodeType === Node.TEXT_NODE) drawWords(child, style);
      }
    }
    if (opacity < 1) parts.push("</g>");
  }

  function drawBox(style, box) {
    if (box.width < 0.5 || box.height < 0.5) return;
    const radius = parseFloat(style.borderTopLeftRadius) || 0;
    const rounded = { ...box, rx: style.borderTopLeftRadius.endsWith("%") ? (radius / 100) * box.width : radius };
    if (isSeen(style.backgroundColor)) add("rect", { ...rounded, fill: style.backgroundColor });
    const sides = ["Top", "Right", "Bottom", "Left"].map((side) => (style[`border${side}Style`] === "none" ? 0 : parseFloat(style[`border${side}Width`])));
    if (sides.every((width) => width > 0)) add("rect", { ...rounded, fill: "none", stroke: style.borderTopColor, "stroke-width": sides[0] });
    else if (sides[2] > 0) add("line", { x1: box.x, x2: box.x + box.width, y1: box.y + box.height, y2: box.y + box.height, stroke: style.borderBottomColor, "stroke-width": sides[2] });
    if (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 && !["auto"].includes(style.outlineStyle)) add("rect", { ...rounded, fill: "none", stroke: style.outlineColor, "stroke-width": parseFloat(style.outlineWidth) });
  }

  /** The line of a key, which a style sheet draws before its text. */
  function drawMark(element, { x, y, height }) {
    const mark = getComputedStyle(element, "::before");
    if (mark.content === "none" || !(parseFloat(mark.borderTopWidth) > 0) || !(parseFloat(mark.width) > 0)) return;
    const middle = y + height / 2;
    const dash = { dashed: "5 4", dotted: "2 3" }[mark.borderTopStyle];
    add("line", { x1: x, x2: x + parseFloat(mark.width), y1: middle, y2: middle, stroke: mark.borderTopColor, "stroke-width": parseFloat(mark.borderTopWidth), "stroke-dasharray": dash });
  }

  function drawWords(node, style) {
    const range = document.createRange();
    let line = null;
    const flush = () => line && writeLine(line, style);
    for (const word of node.data.matchAll(/\S+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const [box] = range.getClientRects();
      if (!box || box.width < 0.1) continue;
      const vertical = style.writingMode.startsWith("vertical");
      if (line && (vertical ? Math.abs(line.left - box.left) < 2 : Math.abs(line.top - box.top) < 2)) {
        line.words.push(word[0]);
        [line.left, line.top, line.right, line.bottom] = [Math.min(line.left, box.left), Math.min(line.top, box.top), Math.max(line.right, box.right), Math.max(line.bottom, box.bottom)];
      } else {
        flush();
        line = { left: box.left, top: box.top, right: box.right, bottom: box.bottom, words: [word[0]], vertical };
      }
    }
    flush();
  }

  function writeLine({ left, top, right: end, bottom: foot, words, vertical }, style) {
    const box = reach(place({ left, top, width: end - left, height: foot - top }));
    const ascent = ascentOf(style);
    const at = vertical ? { transform: `translate(${round(box.x + ascent)} ${round(box.y + box.height)}) rotate(-90)` } : { x: box.x, y: round(box.y + ascent) };
    const length = words.length > 1 || words[0].length > 3 ? { textLength: vertical ? box.height : box.width, lengthAdjust: "spacingAndGlyphs" } : {};
    add("text", { ...at, ...fontOf(style), ...length, fill: style.color }, escape(words.join(" ")));
  }

  function drawText(text, style, { x, y, height }) {
    add("text", { x: x + 8, y: round(y + height / 2 + 0.35 * parseFloat(style.fontSize)), ...fontOf(style), fill: style.color }, escape(text));
  }

  function drawRange(input, { x, y, width, height }) {
    const share = (Number(input.value) - Number(input.min)) / (Number(input.max) - Number(input.min));
    const middle = y + height / 2;
    add("line", { x1: x + 8, x2: x + width - 8, y1: middle, y2: middle, stroke: css("--line"), "stroke-width": 4, "stroke-linecap": "round" });
    add("circle", { cx: round(x + 8 + share * (width - 16)), cy: middle, r: 7, fill: css("--one") });
  }

  function drawMeter(meter, box) {
    const share = (meter.value - meter.min) / (meter.max - meter.min);
    add("rect", { ...box, rx: 4, fill: css("--soft") });
    add("rect", { ...box, width: round(box.width * share), rx: 4, fill: css(meter.value > meter.high ? "--bad" : meter.value > meter.low ? "--two" : "--good") });
  }

  function drawCanvas(canvas, style, box) {
    if (!canvas.width || !canvas.height) return;
    if (canvas.drawing) return parts.push(`<g transform="translate(${box.x} ${box.y})">${canvas.drawing()}</g>`);
    const sharp = style.imageRendering === "pixelated" ? { "image-rendering": "pixelated" } : {};
    add("image", { ...box, preserveAspectRatio: "none", href: canvas.toDataURL(), ...sharp });
  }

  visit(root);
  if (!(right > left)) [left, top, right, bottom] = [0, 0, 1, 1]; // nothing is shown
  const [x, y] = [Math.floor(left - PAD), Math.floor(top - PAD)];
  const [width, height] = [Math.ceil(right + PAD) - x, Math.ceil(bottom + PAD) - y];
  const ground = getComputedStyle(document.body).backgroundColor;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="${x} ${y} ${width} ${height}"><rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${ground}"/>${parts.join("")}</svg>\n`;
  return { svg, width, height };
}

export function tagOf(tag, attributes, content = "") {
  const list = Object.entries(attributes).filter(([, value]) => value !== undefined && value !== null).map(([name, value]) => ` ${name}="${escape(value)}"`);
  return `<${tag}${list.join("")}>${content}</${tag}>`;
}

const fontOf = (style) => ({ "font-family": style.fontFamily, "font-size": parseFloat(style.fontSize), "font-weight": style.fontWeight === "400" ? undefined : style.fontWeight });

const ascents = new Map();
function ascentOf(style) {
  const key = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  if (!ascents.has(key)) {
    const paper = document.createElement("canvas").getContext("2d");
    paper.font = key;
    ascents.set(key, paper.measureText("x").fontBoundingBoxAscent);
  }
  return ascents.get(key);
}

const PAINT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "display", "visibility"];

/** A copy of an SVG at a place, with what the style sheet says written into it. */
function copyOf(svg, { x, y, width, height }) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((each, k) => {
    const style = getComputedStyle(originals[k]);
    for (const name of PAINT) each.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "style", "tabindex", "role", "aria-label", "aria-hidden"]) each.removeAttribute(name);
  });
  for (const [name, value] of Object.entries({ x, y, width, height })) copy.setAttribute(name, value);
  copy.setAttribute("overflow", "visible");
  return new XMLSerializer().serializeToString(copy);
}
