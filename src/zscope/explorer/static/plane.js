// A plane of two latents on a canvas: background, codes, paths and handles.

import { amount, css, signed } from "./colour.js";
import { tickText, ticks } from "./draw.js";

const BOX = { l: 46, r: 10, t: 10, b: 40 };

/** Draw the plane; returns the scale between latents and pixels. */
export function drawPlane(canvas, { plane, path, pictures, colours, names, point, response, ends }) {
  const side = canvas.clientWidth;
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(side * ratio)) canvas.width = canvas.height = Math.round(side * ratio);
  const paper = canvas.getContext("2d");
  paper.setTransform(ratio, 0, 0, ratio, 0, 0);
  paper.clearRect(0, 0, side, side);
  const scale = scaleOf(plane.extent, side);
  drawBackground(paper, plane, scale);
  drawAxes(paper, plane.extent, scale, names);
  paper.save();
  paper.beginPath();
  paper.rect(BOX.l, BOX.t, scale.width, scale.height);
  paper.clip();
  if (pictures) drawPictures(paper, pictures, scale);
  else drawCodes(paper, plane, scale, colours);
  if (path) {
    drawPath(paper, scale, path.straight, css("--muted"), [5, 4]);
    drawPath(paper, scale, path.points, css("--one"), []);
  }
  paper.restore();
  if (point && response) drawArrow(paper, scale, point, response);
  for (const [place, text] of ends) if (place) drawHandle(paper, scale, place, text);
  if (point) drawHandle(paper, scale, point, "");
  return scale;
}

function scaleOf([low0, high0, low1, high1], side) {
  const width = side - BOX.l - BOX.r;
  const height = side - BOX.t - BOX.b;
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  return {
    side,
    width,
    height,
    x: (value) => BOX.l + ((value - low0) / (high0 - low0)) * width,
    y: (value) => BOX.t + (1 - (value - low1) / (high1 - low1)) * height,
    invert: (x, y) => [
      clamp(low0 + ((x - BOX.l) / width) * (high0 - low0), low0, high0),
      clamp(low1 + (1 - (y - BOX.t) / height) * (high1 - low1), low1, high1),
    ],
    step: [(high0 - low0) / 40, (high1 - low1) / 40],
  };
}

/** The kind of colours, and the value of the strongest: rare extremes may exceed it. */
export function colourRange(plane) {
  const kind = ["divergence", "curvature"].includes(plane.layer) ? "signed" : "amount";
  const sizes = plane.values.flat().map(Math.abs).sort((a, b) => a - b);
  return { kind, most: sizes[Math.floor(0.98 * (sizes.length - 1))] || sizes.at(-1) || 1 };
}

function drawBackground(paper, plane, { width, height }) {
  paper.fillStyle = css("--surface");
  paper.fillRect(BOX.l, BOX.t, width, height);
  if (!plane.values) return;
  const grid = plane.values.length;
  const { most, kind } = colourRange(plane);
  const image = new ImageData(grid, grid);
  for (let i = 0; i < grid; i++) {
    for (let j = 0; j < grid; j++) {
      const share = plane.values[i][j] / most;
      const colour = kind === "signed" ? signed(share) : amount(share);
      image.data.set([...colour, 255], 4 * ((grid - 1 - j) * grid + i));
    }
  }
  const small = new OffscreenCanvas(grid, grid);
  small.getContext("2d").putImageData(image, 0, 0);
  paper.save();
  paper.globalAlpha = plane.factor ? 0.55 : 0.9;
  paper.imageSmoothingEnabled = true;
  paper.imageSmoothingQuality = "high";
  // Grid points are at the corners of the plane, pixels have their centres inside.
  const cell = [width / (grid - 1), height / (grid - 1)];
  paper.beginPath();
  paper.rect(BOX.l, BOX.t, width, height);
  paper.clip();
  paper.drawImage(small, BOX.l - cell[0] / 2, BOX.t - cell[1] / 2, width + cell[0], height + cell[1]);
  if (plane.unlike) hatch(paper, plane.unlike, cell);
  paper.restore();
}

/** A stroke through every grid point that is unlike data. */
function hatch(paper, unlike, [across, up]) {
  const grid = unlike.length;
  paper.strokeStyle = css("--muted");
  paper.globalAlpha = 0.6;
  paper.lineWidth = 1;
  paper.beginPath();
  for (let i = 0; i < grid; i++) {
    for (let j = 0; j < grid; j++) {
      if (!unlike[i][j]) continue;
      const x = BOX.l + i * across;
      const y = BOX.t + (grid - 1 - j) * up;
      paper.moveTo(x - across / 2, y + up / 2);
      paper.lineTo(x + across / 2, y - up / 2);
    }
  }
  paper.stroke();
}

function drawAxes(paper, [low0, high0, low1, high1], { side, width, height, x, y }, names) {
  paper.strokeStyle = css("--line");
  paper.fillStyle = css("--muted");
  paper.font = "12px system-ui, sans-serif";
  paper.lineWidth = 1;
  paper.strokeRect(BOX.l + 0.5, BOX.t + 0.5, width - 1, height - 1);
  paper.textAlign = "center";
  for (const value of ticks(low0, high0)) paper.fillText(tickText(value), x(value), side - BOX.b + 16);
  paper.textAlign = "right";
  for (const value of ticks(low1, high1)) paper.fillText(tickText(value), BOX.l - 7, y(value) + 4);
  paper.fillStyle = css("--ink");
  paper.textAlign = "center";
  paper.fillText(names[0], BOX.l + width / 2, side - 6);
  paper.save();
  paper.translate(12, BOX.t + height / 2);
  paper.rotate(-Math.PI / 2);
  paper.fillText(names[1], 0, 0);
  paper.restore();
}

/** Rows of pictures, from below, over the whole plane; between them the background is seen. */
function drawPictures(paper, rows, { width, height }) {
  paper.imageSmoothingEnabled = false;
  const [across, up] = [width / rows[0].length, height / rows.length];
  rows.forEach((row, j) =>
    row.forEach((picture, i) => {
      const scale = Math.min(0.86 * across / picture.width, 0.86 * up / picture.height);
      const [w, h] = [picture.width * scale, picture.height * scale];
      paper.drawImage(picture, BOX.l + (i + 0.5) * across - w / 2, BOX.t + height - (j + 0.5) * up - h / 2, w, h);
    }),
  );
}

function drawCodes(paper, plane, scale, colours) {
  const ink = css("--ink");
  paper.globalAlpha = colours ? 0.9 : 0.35;
  paper.strokeStyle = css("--surface");
  paper.lineWidth = 0.6;
  const radius = plane.codes.length > 800 ? 2.2 : 3;
  plane.codes.forEach(([x, y], k) => {
    paper.fillStyle = colours ? colours.colour(plane.factor[k]) : ink;
    paper.beginPath();
    paper.arc(scale.x(x), scale.y(y), radius, 0, 7);
    paper.fill();
    if (colours) paper.stroke();
  });
  paper.globalAlpha = 1;
}

function drawPath(paper, scale, points, colour, dash) {
  for (const [style, width] of [[css("--surface"), 5], [colour, 2.4]]) {
    paper.strokeStyle = style;
    paper.lineWidth = width;
    paper.setLineDash(style === colour ? dash : []);
    paper.lineJoin = "round";
    paper.beginPath();
    points.forEach(([x, y], k) => paper[k ? "lineTo" : "moveTo"](scale.x(x), scale.y(y)));
    paper.stroke();
  }
  paper.setLineDash([]);
}

function drawArrow(paper, scale, from, to) {
  const [x0, y0, x1, y1] = [scale.x(from[0]), scale.y(from[1]), scale.x(to[0]), scale.y(to[1])];
  const angle = Math.atan2(y1 - y0, x1 - x0);
  if (Math.hypot(x1 - x0, y1 - y0) < 3) return;
  paper.strokeStyle = paper.fillStyle = css("--two");
  paper.lineWidth = 2.4;
  paper.beginPath();
  paper.moveTo(x0, y0);
  paper.lineTo(x1, y1);
  paper.stroke();
  paper.beginPath();
  paper.moveTo(x1, y1);
  for (const turn of [2.6, -2.6]) paper.lineTo(x1 + 10 * Math.cos(angle + turn), y1 + 10 * Math.sin(angle + turn));
  paper.fill();
}

function drawHandle(paper, scale, point, text) {
  const [x, y] = [scale.x(point[0]), scale.y(point[1])];
  paper.beginPath();
  paper.arc(x, y, text ? 11 : 8, 0, 7);
  paper.fillStyle = css("--surface");
  paper.fill();
  paper.lineWidth = 2.5;
  paper.strokeStyle = text ? css("--one") : css("--two");
  paper.stroke();
  if (!text) return;
  paper.fillStyle = css("--ink");
  paper.font = "bold 12px system-ui, sans-serif";
  paper.textAlign = "center";
  paper.fillText(text, x, y + 4.5);
}
