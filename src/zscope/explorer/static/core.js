// Elements, requests to the server, and the state in links.

/** An element: h("button", {type: "button", onclick: f}, "text", child). */
export function h(tag, properties = {}, ...children) {
  const svg = ["svg", "g", "path", "circle", "line", "text", "rect", "polyline", "title", "defs", "marker", "clipPath", "image"];
  const element = svg.includes(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name in element && !(element instanceof SVGElement) && !["list", "form"].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const SERVER = "the server"; // messages about it are removed by any answer

let pending = 0;

function countPending(change) {
  pending += change;
  document.getElementById("view").setAttribute("aria-busy", pending > 0);
}

// In the frame of a notebook, a browser that keeps nothing for third parties refuses storage.

/** What was stored under a key; null if nothing was, or nothing may be. */
export function stored(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function store(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Then it holds until the page is loaded again.
  }
}

/** The answer of an endpoint; an Error has a message that can be shown. The event "answered"
 * removes the message about an endpoint once it answers again. */
export async function api(name, parameters = {}, signal = undefined) {
  countPending(1);
  try {
    const answer = await request(name, parameters, signal);
    document.dispatchEvent(new CustomEvent("answered", { detail: name }));
    return answer;
  } catch (error) {
    error.about ??= name;
    throw error;
  } finally {
    countPending(-1);
  }
}

async function request(name, parameters, signal) {
  const body = Object.fromEntries(Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined));
  let reply;
  try {
    reply = await fetch(`api/${name}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      credentials: "same-origin",
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const message = "explorer: the server does not answer. Was it stopped in the terminal? Start it again: zscope explore TARGET";
    throw Object.assign(new Error(message), { about: SERVER });
  }
  let content = null;
  try {
    content = await reply.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (!reply.ok || content === null) {
    throw new Error(content?.error?.message ?? `explorer: the server answered with status ${reply.status} and no message. See the terminal.`);
  }
  return content;
}

/** Runs one request at a time; of the requests made meanwhile only the latest is sent.
 *
 * Where `run` fails, `failed(error)` must remove what is shown, which is out of date; not if a
 * later request has aborted this one. */
export class Latest {
  constructor(run, failed, { abort = false } = {}) {
    this.run = run;
    this.failed = failed;
    this.abort = abort;
    this.running = false;
    this.next = null;
    this.controller = null;
  }

  ask(...parameters) {
    this.next = parameters;
    if (this.running) {
      if (this.abort) this.controller.abort();
      return;
    }
    this.#go();
  }

  async #go() {
    this.running = true;
    while (this.next) {
      const parameters = this.next;
      this.next = null;
      this.controller = new AbortController();
      try {
        await this.run(...parameters, this.controller.signal);
      } catch (error) {
        if (error.name !== "AbortError") this.failed(error);
      }
    }
    this.running = false;
  }
}

/** {view, parameters} of "#map?first=0&second=3". */
export function readHash(hash) {
  const [view, query = ""] = hash.replace(/^#/, "").split("?");
  return { view, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

export function queryOf(parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  return query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
}

export function hashOf(view, parameters) {
  const query = queryOf(parameters);
  return `#${view}${query ? `?${query}` : ""}`;
}

/** Latent vectors in links: four decimals; for many latents, base64 of 32-bit numbers. */
export function writeVector(z) {
  if (z.length <= 64) return z.map((value) => String(Math.round(value * 1e4) / 1e4)).join(",");
  const bytes = new Uint8Array(new Float32Array(z).buffer);
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return `f32:${btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

/** The latent vector of a link, or null if it is not `count` finite numbers. */
export function readVector(text, count) {
  if (!text) return null;
  let values = [];
  try {
    if (text.startsWith("f32:")) {
      const raw = atob(text.slice(4).replaceAll("-", "+").replaceAll("_", "/"));
      const bytes = Uint8Array.from(raw, (letter) => letter.charCodeAt(0));
      values = Array.from(new Float32Array(bytes.buffer));
    } else values = text.split(",").map(Number);
  } catch {
    return null;
  }
  return values.length === count && values.every(Number.isFinite) ? values : null;
}

let halves = null; // the value of each of the 65,536 half-precision numbers

/** The numbers of {shape, half}: base64 of little-endian half-precision numbers. */
export function readHalves({ half }) {
  halves ??= Float32Array.from({ length: 65536 }, (_, bits) => {
    const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  });
  const raw = atob(half);
  const values = new Float32Array(raw.length / 2);
  for (let k = 0; k < values.length; k++) values[k] = halves[raw.charCodeAt(2 * k) | (raw.charCodeAt(2 * k + 1) << 8)];
  return values;
}

/** The numbers of {floats}: base64 of little-endian 32-bit numbers. */
export function readFloats({ floats }) {
  const raw = atob(floats);
  const bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
  return new Float32Array(bytes.buffer);
}

export function readPair(text) {
  return readVector(text, 2);
}

export function readIndex(text, below) {
  const value = Number(text);
  return text !== undefined && text !== "" && Number.isInteger(value) && value >= 0 && value < below ? value : null;
}

export const writePair = (pair) => (pair ? pair.map((value) => String(Math.round(value * 1e4) / 1e4)).join(",") : null);

/** A number with fixed digits, a true minus sign, and no minus sign before zero. */
export function number(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  const text = Math.abs(value) >= 1e5 ? value.toExponential(1) : value.toFixed(digits);
  return text.replace(/^-(0\.?0*)$/, "$1").replace("-", "−");
}

/** A number of any size, with three significant digits. */
export function precise(value) {
  if (typeof value !== "number") return number(value);
  const size = Math.abs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("-", "−").replace("e−", "e-").replace("e+", "e");
  return number(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

let counter = 0;
/** An input with its label. */
export function field(text, input, properties = {}) {
  input.id ||= `field-${++counter}`;
  return h("div", { className: `field ${properties.className ?? ""}` }, h("label", { htmlFor: input.id }, text), input);
}

export function select(options, value, onchange) {
  return h(
    "select",
    { onchange: (event) => onchange(event.target.value) },
    options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)),
  );
}

/** Radio buttons side by side. */
export function choices(legend, options, value, onchange) {
  const name = `choice-${++counter}`;
  const inputs = options.map(([key, text, about]) => {
    const input = h("input", { type: "radio", name, value: key, checked: key === value, onchange: () => onchange(key) });
    return h("label", { title: about ?? "" }, input, h("span", {}, text));
  });
  const group = h("fieldset", { className: "choices" }, h("legend", {}, legend), inputs);
  group.choose = (key) => {
    for (const label of inputs) label.firstChild.checked = label.firstChild.value === key;
  };
  return group;
}

/** A line of text that appears when a request takes longer than a moment. */
export function busy() {
  const element = h("div", { className: "busy", role: "status", hidden: true });
  let timer = null;
  element.during = async (text, promise) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      element.textContent = text;
      element.hidden = false;
    }, 250);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      element.hidden = true;
    }
  };
  return element;
}
