// Many points on a canvas: drawn, moved, zoomed, found under a pointer and enclosed by a lasso.
//
// Points are painted into an array of pixels, as discs with soft edges that are made once for each
// of 4 x 4 places within a pixel: tens of thousands take a few milliseconds on any machine.

import { css, dark } from "./colour.js";
import { tickText, ticks } from "./draw.js";
import { tagOf } from "./files.js";

const BOX = { l: 46, r: 10, t: 10, b: 40 };
const MARGIN = 0.05; // of the range, around all points
const CELLS = 128; // along each side of the grid in which points are looked up
const MOST_ZOOM = 400;
export const THUMBNAIL = 44; // pixels of the page from one small picture to the next

/** Red, green and blue as one number, in the order of bytes of a canvas. */
export const pack = ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red;

const parse = (text) => text.match(/[\d.]+/g).map(Number).slice(0, 3);

/** A mix of two packed colours, `share` of the first. */
function mix(one, other, share) {
  let sum = 255 << 24;
  for (const shift of [0, 8, 16]) sum |= Math.round(share * ((one >> shift) & 255) + (1 - share) * ((other >> shift) & 255)) << shift;
  return sum;
}

/** Discs of a radius at 16 places within a pixel: distances in the array, and how much they cover. */
function discsOf(radius, stride) {
  const reach = Math.ceil(radius + 1);
  return Array.from({ length: 16 }, (_, place) => {
    const [x, y] = [((place & 3) + 0.5) / 4, ((place >> 2) + 0.5) / 4];
    const offsets = [];
    const covers = [];
    for (let i = -reach; i <= reach; i++) {
      for (let j = -reach; j <= reach; j++) {
        const cover = Math.round(256 * Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(j + 0.5 - x, i + 0.5 - y))));
        if (cover > 8) offsets.push(i * stride + j), covers.push(cover);
      }
    }
    return { offsets: Int32Array.from(offsets), covers: Uint16Array.from(covers) };
  });
}

/** Whether a place lies inside a polygon, by the even-odd rule. */
export function isInside(x, y, polygon) {
  let inside = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
    const [ax, ay] = polygon[i];
    const [bx, by] = polygon[j];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}

export class Scatter {
  constructor(canvas) {
    this.canvas = canvas;
    this.x = this.y = new Float32Array(0);
    this.colours = new Uint32Array(0); // packed, one for each point
    this.selected = null; // 1 for each selected point, or null
    this.names = ["", ""];
    this.equal = true; // whether both axes have one scale
    this.window = null; // [left, right, bottom, top] in units of the points
    this.current = -1; // the point with a ring
    this.lasso = null; // places on the canvas
    this.pictures = null; // by point: a canvas; null draws none
    this.cells = []; // [point, x, y] of the small pictures
    this.waiting = false;
  }

  get count() {
    return this.x.length;
  }

  setPoints(x, y, names, equal) {
    Object.assign(this, { x, y, names, equal, current: -1, lasso: null });
    // Drawn in a random order, the same each time: rows are often sorted by a factor.
    this.order = new Uint32Array(x.length);
    let state = 1;
    for (let k = 0; k < x.length; k++) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      const other = Math.floor((state / 2 ** 32) * (k + 1));
      this.order[k] = this.order[other];
      this.order[other] = k;
    }
    const range = (values) => {
      let [low, high] = [Infinity, -Infinity];
      for (const value of values) (low = Math.min(low, value)), (high = Math.max(high, value));
      return high > low ? [low, high] : [low - 1, low + 1];
    };
    this.range = [...range(x), ...range(y)];
    this.#fillGrid();
  }

  // Points by the cell that they are in, as in a sparse matrix.
  #fillGrid() {
    const [left, right, bottom, top] = this.range;
    const at = (value, low, high) => Math.min(CELLS - 1, Math.max(0, Math.floor((CELLS * (value - low)) / (high - low))));
    const cell = Uint32Array.from(this.x, (value, k) => at(this.y[k], bottom, top) * CELLS + at(value, left, right));
    this.starts = new Uint32Array(CELLS * CELLS + 1);
    for (const each of cell) this.starts[each + 1]++;
    for (let k = 0; k < CELLS * CELLS; k++) this.starts[k + 1] += this.starts[k];
    const next = this.starts.slice();
    this.points = new Uint32Array(cell.length);
    cell.forEach((each, k) => (this.points[next[each]++] = k));
    this.cellAt = (x, y) => [at(x, left, right), at(y, bottom, top)];
  }

  // The scale between units of the points and pixels of the page.
  get size() {
    return { width: this.canvas.clientWidth - BOX.l - BOX.r, height: this.canvas.clientHeight - BOX.t - BOX.b };
  }
  px = (x) => BOX.l + ((x - this.window[0]) / (this.window[1] - this.window[0])) * this.size.width;
  py = (y) => BOX.t + (1 - (y - this.window[2]) / (this.window[3] - this.window[2])) * this.size.height;
  ux = (px) => this.window[0] + ((px - BOX.l) / this.size.width) * (this.window[1] - this.window[0]);
  uy = (py) => this.window[2] + (1 - (py - BOX.t) / this.size.height) * (this.window[3] - this.window[2]);
  holds = (px, py) => px >= BOX.l && py >= BOX.t && px <= BOX.l + this.size.width && py <= BOX.t + this.size.height;

  /** The window with all points. */
  whole() {
    const { width, height } = this.size;
    let [left, right, bottom, top] = this.range;
    const grow = (low, high, share) => [low - (share * (high - low)) / 2, high + (share * (high - low)) / 2];
    [left, right] = grow(left, right, 2 * MARGIN);
    [bottom, top] = grow(bottom, top, 2 * MARGIN);
    if (this.equal) {
      const ratio = (right - left) / (top - bottom) / (width / height);
      if (ratio < 1) [left, right] = grow(left, right, 1 / ratio - 1);
      else [bottom, top] = grow(bottom, top, ratio - 1);
    }
    return [left, right, bottom, top];
  }
  reset() {
    this.window = this.whole();
    this.render();
  }
  move(dx, dy) {
    const [left, right, bottom, top] = this.window;
    const [x, y] = [(-dx / this.size.width) * (right - left), (dy / this.size.height) * (top - bottom)];
    this.window = [left + x, right + x, bottom + y, top + y];
    this.render();
  }
  zoom(factor, px, py) {
    const [x, y] = [this.ux(px), this.uy(py)];
    const [left, right, bottom, top] = this.window;
    const whole = this.whole();
    const most = (right - left) / (whole[1] - whole[0]); // 1 for the whole, less if zoomed in
    factor = Math.min(Math.max(factor, most / 2), most * MOST_ZOOM);
    this.window = [x - (x - left) / factor, x + (right - x) / factor, y - (y - bottom) / factor, y + (top - y) / factor];
    this.render();
  }

  /** The point nearest to a place on the canvas within `reach` pixels, or -1. */
  pick(px, py, reach = 14) {
    if (!this.window || !this.count) return -1;
    const from = this.cellAt(this.ux(px - reach), this.uy(py + reach));
    const to = this.cellAt(this.ux(px + reach), this.uy(py - reach));
    let [best, found] = [reach * reach, -1];
    for (let row = from[1]; row <= to[1]; row++) {
      const end = this.starts[row * CELLS + to[0] + 1];
      for (let k = this.starts[row * CELLS + from[0]]; k < end; k++) {
        const point = this.points[k];
        const far = (this.px(this.x[point]) - px) ** 2 + (this.py(this.y[point]) - py) ** 2;
        if (far < best) [best, found] = [far, point];
      }
    }
    return found;
  }
  /** The point nearest to the current one in a direction, or to the middle of the window. */
  next([dx, dy]) {
    const start = this.current < 0 ? [BOX.l + this.size.width / 2, BOX.t + this.size.height / 2] : [this.px(this.x[this.current]), this.py(this.y[this.current])];
    let [best, found] = [Infinity, this.current];
    for (let k = 0; k < this.count; k++) {
      if (k === this.current) continue;
      const [x, y] = [this.px(this.x[k]), this.py(this.y[k])];
      if (!this.holds(x, y)) continue;
      const along = (x - start[0]) * dx + (y - start[1]) * dy;
      const across = Math.abs((x - start[0]) * dy) + Math.abs((y - start[1]) * dx);
      const far = this.current < 0 ? Math.hypot(x - start[0], y - start[1]) : along > 0.5 ? along + 2 * across : Infinity;
      if (far < best) [best, found] = [far, k];
    }
    return found;
  }
  /** The points inside a polygon of places on the canvas; without one, all that are visible. */
  inside(polygon = null) {
    if (!polygon) {
      const [left, right, bottom, top] = this.window;
      polygon = [[left, bottom], [right, bottom], [right, top], [left, top]];
    } else polygon = polygon.map(([px, py]) => [this.ux(px), this.uy(py)]);
    const xs = polygon.map(([x]) => x);
    const ys = polygon.map(([, y]) => y);
    const [left, right, bottom, top] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const points = [];
    for (let k = 0; k < this.count; k++) {
      const [x, y] = [this.x[k], this.y[k]];
      if (x >= left && x <= right && y >= bottom && y <= top && isInside(x, y, polygon)) points.push(k);
    }
    return points;
  }

  /** Draw, once before the next frame. */
  render() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  get radius() {
    const base = this.count > 20000 ? 1.5 : this.count > 6000 ? 2 : this.count > 1500 ? 2.6 : 3.6;
    const whole = this.whole();
    const zoom = (whole[1] - whole[0]) / (this.window[1] - this.window[0]);
    return base * Math.min(2.4, Math.max(1, zoom ** 0.4));
  }

  draw() {
    const { canvas } = this;
    if (!canvas.isConnected || !canvas.clientWidth || !this.count) return;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    this.window ??= this.whole();
    const paper = canvas.getContext("2d");
    paper.setTransform(1, 0, 0, 1, 0, 0);
    paper.clearRect(0, 0, width, height);
    this.#drawPoints(paper, ratio);
    paper.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (this.pictures) this.#drawPictures(paper);
    this.#drawAxes(paper);
    if (this.current >= 0) this.#drawRing(paper, this.current);
    if (this.lasso) this.#drawLasso(paper);
  }

  #drawPoints(paper, ratio) {
    const { width, height } = this.size;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    const radius = this.radius * ratio;
    const reach = Math.ceil(radius + 1);
    const border = 2 * reach; // so that discs beyond an edge are painted without looking for it
    const stride = across + 2 * border;
    const length = stride * (down + 2 * border);
    if (this.image?.width !== stride || this.image.height !== length / stride) {
      this.image = new ImageData(stride, length / stride);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    const ground = pack(parse(css("--surface")));
    this.pixels.fill(ground);
    const key = `${radius} ${stride}`;
    if (this.discKey !== key) [this.discKey, this.discs] = [key, discsOf(radius, stride)];
    const faint = this.selected ? this.#faint(ground) : null;
    this.#stamp(this.order, faint ?? this.colours, faint ? 0 : -1, { across, down, reach, border, stride });
    if (faint) this.#stamp(this.order, this.colours, 1, { across, down, reach, border, stride });
    paper.putImageData(this.image, Math.round(BOX.l * ratio) - border, Math.round(BOX.t * ratio) - border, border, border, across, down);
  }

  /** Colours of points that are not selected. */
  #faint(ground) {
    const key = `${ground}`;
    if (this.faintOf !== this.colours || this.faintKey !== key) {
      const known = new Map();
      this.faintColours = this.colours.map((colour) => {
        if (!known.has(colour)) known.set(colour, mix(colour, ground, 0.18));
        return known.get(colour);
      });
      Object.assign(this, { faintOf: this.colours, faintKey: key });
    }
    return this.faintColours;
  }

  /** Paint the points whose `selected` is `which` (-1: all). */
  #stamp(order, colours, which, { across, down, reach, border, stride }) {
    const { x, y, pixels, discs, selected } = this;
    const [left, right, bottom, top] = this.window;
    const [kx, ky] = [(4 * across) / (right - left), (4 * down) / (top - bottom)]; // quarters of pixels
    const [least, most, lowest] = [-4 * reach, 4 * (across + reach), 4 * (down + reach)];
    for (let k = 0; k < order.length; k++) {
      const point = order[k];
      if (which >= 0 && selected[point] !== which) continue;
      const qx = Math.floor((x[point] - left) * kx);
      const qy = Math.floor((top - y[point]) * ky);
      if (qx < least || qy < least || qx >= most || qy >= lowest) continue;
      const { offsets, covers } = discs[(qx & 3) + 4 * (qy & 3)];
      const at = ((qy >> 2) + border) * stride + (qx >> 2) + border;
      const colour = colours[point];
      const [even, odd] = [colour & 0xff00ff, colour & 0xff00];
      for (let i = 0; i < offsets.length; i++) {
        const cover = covers[i];
        const to = at + offsets[i];
        if (cover === 256) {
          pixels[to] = colour;
          continue;
        }
        const below = pixels[to];
        const rest = 256 - cover;
        pixels[to] = 0xff000000 | ((((below & 0xff00ff) * rest + even * cover) / 256) & 0xff00ff) | (((below & 0xff00) * rest + odd * cover) >>> 8 & 0xff00);
      }
    }
  }

  /** One point for each square of the plane that has some: the nearest to its middle. */
  squares() {
    const { width, height } = this.size;
    const across = ((this.window[1] - this.window[0]) / width) * THUMBNAIL;
    const up = ((this.window[3] - this.window[2]) / height) * THUMBNAIL;
    const squares = new Map();
    const [left, right, bottom, top] = this.window;
    for (let k = 0; k < this.count; k++) {
      const [x, y] = [this.x[k], this.y[k]];
      if (x < left || x > right || y < bottom || y > top) continue;
      const [i, j] = [Math.floor(x / across), Math.floor(y / up)];
      const far = Math.hypot(x / across - i - 0.5, y / up - j - 0.5);
      const key = `${i},${j}`;
      if (!squares.has(key) || far < squares.get(key)[0]) squares.set(key, [far, k, (i + 0.5) * across, (j + 0.5) * up]);
    }
    return Array.from(squares.values(), ([, k, x, y]) => [k, x, y]);
  }

  #drawPictures(paper) {
    paper.save();
    paper.beginPath();
    paper.rect(BOX.l, BOX.t, this.size.width, this.size.height);
    paper.clip();
    paper.imageSmoothingEnabled = false;
    const side = THUMBNAIL - 4;
    for (const [point, x, y] of this.squares()) {
      const picture = this.pictures.get(point);
      if (!picture) continue;
      const scale = side / Math.max(picture.width, picture.height);
      const [width, height] = [picture.width * scale, picture.height * scale];
      const [px, py] = [this.px(x) - width / 2, this.py(y) - height / 2];
      const colour = this.colours[point];
      paper.fillStyle = `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
      paper.fillRect(px - 1.5, py - 1.5, width + 3, height + 3);
      paper.drawImage(picture, px, py, width, height);
    }
    paper.restore();
  }

  #drawAxes(paper) {
    const { width, height } = this.size;
    const [left, right, bottom, top] = this.window;
    paper.strokeStyle = css("--line");
    paper.fillStyle = css("--muted");
    paper.font = "12px system-ui, sans-serif";
    paper.lineWidth = 1;
    paper.strokeRect(BOX.l + 0.5, BOX.t + 0.5, width - 1, height - 1);
    paper.textAlign = "center";
    for (const value of ticks(left, right, width / 60)) paper.fillText(tickText(value), this.px(value), BOX.t + height + 16);
    paper.textAlign = "right";
    for (const value of ticks(bottom, top, height / 70)) paper.fillText(tickText(value), BOX.l - 6, this.py(value) + 4);
    paper.fillStyle = css("--ink");
    paper.textAlign = "center";
    paper.fillText(this.names[0], BOX.l + width / 2, BOX.t + height + 34);
    paper.save();
    paper.translate(12, BOX.t + height / 2);
    paper.rotate(-Math.PI / 2);
    paper.fillText(this.names[1], 0, 0);
    paper.restore();
  }

  #drawRing(paper, point) {
    const [x, y] = [this.px(this.x[point]), this.py(this.y[point])];
    if (!this.holds(x, y)) return;
    for (const [colour, width] of [[css("--surface"), 5], [css("--ink"), 2]]) {
      paper.strokeStyle = colour;
      paper.lineWidth = width;
      paper.beginPath();
      paper.arc(x, y, this.radius + 4, 0, 7);
      paper.stroke();
    }
  }

  #drawLasso(paper) {
    paper.beginPath();
    this.lasso.forEach(([x, y], k) => paper[k ? "lineTo" : "moveTo"](x, y));
    paper.closePath();
    paper.fillStyle = dark() ? "rgb(255 255 255 / 0.12)" : "rgb(0 0 0 / 0.08)";
    paper.fill();
    paper.strokeStyle = css("--accent");
    paper.lineWidth = 2;
    paper.stroke();
  }

  /** The map as shapes, for drawing programs: a path for each colour, whose points are round ends. */
  drawing() {
    const { selected } = this;
    const ground = pack(parse(css("--surface")));
    const faint = selected ? this.#faint(ground) : null;
    const paths = [];
    for (const which of selected ? [0, 1] : [-1]) {
      const places = new Map(); // by colour
      for (const point of this.order) {
        if (which >= 0 && selected[point] !== which) continue;
        const [x, y] = [this.px(this.x[point]), this.py(this.y[point])];
        if (!this.holds(x, y)) continue;
        const colour = which === 0 ? faint[point] : this.colours[point];
        places.set(colour, `${places.get(colour) ?? ""}M${x.toFixed(1)} ${y.toFixed(1)}h0`);
      }
      for (const [colour, d] of places) paths.push(tagOf("path", { d, stroke: `rgb(${colour & 255},${(colour >> 8) & 255},${(colour >> 16) & 255})`, "stroke-width": 2 * this.radius, "stroke-linecap": "round", fill: "none" }));
    }
    const { width, height } = this.size;
    const bottom = BOX.t + height;
    const text = (content, attributes) => tagOf("text", { "font-family": "system-ui, sans-serif", "font-size": 12, fill: css("--muted"), ...attributes }, content);
    return [
      tagOf("rect", { x: BOX.l, y: BOX.t, width, height, fill: css("--surface"), stroke: css("--line") }),
      ...paths,
      ...ticks(this.window[0], this.window[1], width / 60).map((value) => text(tickText(value), { x: this.px(value), y: bottom + 16, "text-anchor": "middle" })),
      ...ticks(this.window[2], this.window[3], height / 70).map((value) => text(tickText(value), { x: BOX.l - 6, y: this.py(value) + 4, "text-anchor": "end" })),
      text(this.names[0], { x: BOX.l + width / 2, y: bottom + 34, "text-anchor": "middle", fill: css("--ink") }),
      text(this.names[1], { transform: `translate(12 ${BOX.t + height / 2}) rotate(-90)`, "text-anchor": "middle", fill: css("--ink") }),
    ].join("");
  }
}
