// Channels: change the latent maps of a picture, and see what the decoder and encoder make of it.

import { Latest, api, choices, field, h, number, readHalves, readIndex, readVector } from "./core.js";
import { colourBar, lines, observation, paintNumbers } from "./draw.js";

const SHOWN = 16;
const LARGEST_BRUSH = 8;
const RANGE = 3; // standard deviations, at the ends of the colours

export function make(context) {
  const { session, look } = context;
  const { channels: count, places, mean, std, order } = session.layout;
  const [height, width] = places.length > 1 ? places.slice(-2) : [1, places[0]];
  const times = places.length > 2 ? places[0] : 1;
  const frames = places.length > 2 ? look.frames || times : 1;
  const state = start(null);
  const cards = new Map(); // by channel
  const former = []; // what was brushed and pasted before each stroke
  let shown = null; // the answer that is drawn
  let opened = null; // the picture that was answered last

  function start(sample) {
    return { sample, offset: Array(count).fill(0), gain: Array(count).fill(1), mute: new Set(), brush: new Map(), paste: new Map(), noise: 0, seed: 0, keep: 1, frame: 0, tool: "brush", size: 1, amount: 2, from: 0, beside: "displacement" };
  }
  const any = (values, usual) => (values.some((value) => value !== usual) ? values : null);
  const flat = (entries) => (entries.size ? [...entries.values()].flat() : null);
  const changes = () => ({ offset: any(state.offset, 0), gain: any(state.gain, 1), mute: state.mute.size ? [...state.mute] : null, brush: flat(state.brush), paste: flat(state.paste), noise: state.noise, seed: state.noise ? state.seed : 0, keep: state.keep });
  const changedEverywhere = () => state.noise > 0 || state.keep < 1 || state.mute.size > 0 || state.offset.some(Boolean) || state.gain.some((value) => value !== 1);
  const time = () => Math.min(times - 1, Math.floor((state.frame * times) / frames));
  const frame = () => (look.frames ? state.frame : 0);

  // What the model makes of it.
  const decoded = observation(look, { size: 288, label: "Decoded from z" });
  decoded.classList.add("decoded");
  const original = observation(look, { size: 136, label: "The data sample" });
  const difference = differencePicture(look);
  const rings = h("div", { className: "rings", "aria-live": "polite" });
  const timing = h("p", { className: "hint timing" });
  const factors = h("p", { className: "hint factors" });

  const live = new Latest(async (since) => {
    const { sample } = state;
    // The first answer about a picture is that of the picture itself, with which others are compared.
    if (opened !== sample && (changedEverywhere() || state.brush.size + state.paste.size)) await api("channels", { sample, frame: frame() });
    const answer = await api("channels", { sample, ...changes(), frame: frame() });
    opened = sample;
    if (sample === state.sample) draw(answer);
    if (since !== null) {
      requestAnimationFrame(() =>
        setTimeout(() => {
          const latency = performance.now() - since;
          timing.textContent = `hand to picture: ${Math.round(latency)} ms`;
          decoded.dataset.latency = latency.toFixed(1);
        }),
      );
    }
  }, (error) => {
    shown = null;
    for (const picture of [decoded, difference]) picture.blank();
    for (const card of cards.values()) card.blank();
    for (const part of [rings, legend]) part.replaceChildren();
    timing.textContent = "";
    context.fail(error);
  });

  const origin = new Latest(async () => {
    const { sample } = state;
    const answer = await api("sample", { index: sample, frame: frame() });
    if (sample !== state.sample) return; // the user has moved on
    original.show(answer.observation);
    factors.textContent = session.factors.map((factor, k) => `${factor.name} ${factor.values[answer.factors[k]] ?? number(answer.factors[k], factor.kind === "continuous" ? 2 : 0)}`).join(", ");
  }, (error) => {
    original.blank();
    factors.textContent = "";
    context.fail(error);
  });

  function draw(answer) {
    shown = { ...answer, z: readHalves(answer.z), displacement: readHalves(answer.displacement), change: readHalves(answer.change), distance: answer.rings && readHalves(answer.rings.distance) };
    decoded.show(answer.decoded);
    difference.show(answer.difference);
    drawMaps();
    describeRings(answer.rings);
    if (place) lookAt(...place);
  }

  function drawMaps() {
    if (!shown) return;
    const size = height * width;
    const at = (values, channel) => values.subarray((channel * times + time()) * size, (channel * times + time() + 1) * size);
    const beside = shown[state.beside];
    const most = Math.max(0.1, beside.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0));
    const distance = shown.distance && shown.distance.subarray(time() * size, (time() + 1) * size);
    const outlines = distance ? [["brushed", outline(distance, 0, width, height)], shown.rings.reach ? ["reach", outline(distance, shown.rings.reach, width, height)] : null] : [];
    for (const [channel, card] of cards) card.draw(at(shown.z, channel), at(beside, channel), most, outlines.filter(Boolean), shown.displaced[channel]);
    legend.replaceChildren(
      colourBar("signed", -RANGE, RANGE, "z less its mean, in σ"),
      colourBar("signed", -most, most, `${BESIDE[state.beside]}, in σ`),
    );
  }

  function describeRings(answer) {
    const text = (...lines) => rings.replaceChildren(...lines.map((line) => h("p", { className: "hint" }, line)));
    if (!answer) text("Brush a place of a map: the ring shows how far the change spreads.");
    else if (answer.within === null) text(changedEverywhere() ? "How far the change spreads is shown when only places were brushed or pasted: reset offsets, gains, noise and low-pass." : "The response does not change: the encoder does not see this.");
    else {
      const within = answer.within.slice(0, 4);
      rings.replaceChildren(
        h("p", {}, h("strong", {}, answer.reach ? `90 % of the change lies within ${answer.reach} ${answer.reach === 1 ? "place" : "places"}` : `${number(100 * within[0], 0)} % of the change stays where it was made`)),
        h("ul", { className: "within" }, within.map((share, r) => h("li", {}, h("span", {}, r ? `≤ ${r}` : "there"), h("i", { style: { width: `${100 * share}%` } }), h("b", {}, `${number(100 * share, 0)} %`)))),
        h("p", { className: "hint" }, `Share of the change of R(z) by distance. Preserved: ${number(answer.gain)} of the change (1 = all of it).`),
      );
    }
  }

  // The maps, with their sliders.
  const list = h("div", { className: places.length > 1 ? "channel-list" : "channel-list strips" });
  const more = h("button", { type: "button", onclick: () => addCards(cards.size + SHOWN) });
  const legend = h("div", { className: "legends" });
  const readout = h("p", { className: "readout", role: "status" });
  const shownFirst = count > SHOWN ? order : Array.from({ length: count }, (_, k) => k);
  function addCards(to) {
    for (const channel of shownFirst.slice(cards.size, to)) {
      const card = channelCard(channel);
      cards.set(channel, card);
      list.append(card.root);
      card.set();
    }
    more.hidden = cards.size >= count;
    more.textContent = `Show more of the ${count} channels`;
    drawMaps();
  }

  function channelCard(channel) {
    const name = `channel ${channel}`;
    const map = latentMap(`Latent map of ${name}. The arrow keys move the brush, Enter applies it.`, width, height, {
      size: () => state.size,
      onlook: (x, y) => lookAt(channel, x, y),
      onstart: () => former.push([new Map(state.brush), new Map(state.paste)]),
      onbrush: (x, y, event) => apply(channel, x, y, event),
    });
    const beside = latentMap("", width, height);
    const offset = dial("offset", { min: -RANGE, max: RANGE, step: 0.1, label: `Offset of ${name}`, text: (value) => `${value > 0 ? "+" : ""}${number(value, 1)} σ` }, (value, event) => {
      state.offset[channel] = value;
      ask(event);
    });
    const gain = dial("gain", { min: 0, max: 2, step: 0.05, label: `Gain of ${name}`, text: (value) => `× ${number(value)}` }, (value, event) => {
      state.gain[channel] = value;
      ask(event);
    });
    const mute = h("button", { type: "button", className: "mute", "aria-pressed": "false", "aria-label": `Mute ${name}`, onclick: (event) => {
      if (!state.mute.delete(channel)) state.mute.add(channel);
      card.set();
      ask(event);
    } }, "Mute");
    const caption = h("figcaption");
    const root = h(
      "section",
      { className: "channel", "aria-label": name, dataset: { channel } },
      h("div", { className: "channel-head" }, h("h3", {}, name), h("span", { className: "hint" }, `mean ${number(mean[channel])}, σ ${number(std[channel])}`), mute),
      h("figure", {}, map, h("figcaption", {}, "z")),
      h("figure", {}, beside, caption),
      h("div", { className: "dials" }, offset.root, gain.root),
    );
    const card = {
      root,
      set() {
        offset.set(state.offset[channel]);
        gain.set(state.gain[channel]);
        const muted = state.mute.has(channel);
        mute.setAttribute("aria-pressed", muted);
        root.classList.toggle("muted", muted);
      },
      draw(z, other, most, outlines, displaced) {
        map.draw(z, RANGE, outlines);
        beside.draw(other, most, outlines);
        const what = BESIDE[state.beside];
        caption.textContent = state.beside === "displacement" ? `${what}, rms ${number(displaced)} σ` : what;
        beside.canvas.setAttribute("aria-label", `${what} of ${name}`);
      },
      blank() {
        map.blank();
        beside.blank();
        caption.textContent = "no answer";
      },
    };
    return card;
  }

  const placeOf = (x, y) => [time(), y, x].slice(-places.length);
  let place = null; // the channel and place that the readout is about
  function lookAt(channel, x, y) {
    place = [channel, x, y];
    const value = shown?.z[((channel * times + time()) * height + y) * width + x];
    const where = `channel ${channel}, ${session.layout.names.map((name, k) => `${name} ${placeOf(x, y)[k]}`).join(", ")}`;
    readout.textContent = value === undefined ? where : `${where}: ${number(mean[channel] + std[channel] * value)} (${value > 0 ? "+" : ""}${number(value)} σ)`;
  }

  /** Apply the brush, or paste, at a place. */
  function apply(channel, x, y, event) {
    const place = placeOf(x, y);
    const { tool, size, amount, from } = state;
    const entries = state[tool];
    const entry = tool === "brush" ? [channel, ...place, size, amount] : [from, ...place, size];
    const inside = (other) => (tool === "paste" || other[0] === channel) && covers(place, size, other.slice(1, 1 + places.length), other[1 + places.length]);
    for (const [key, other] of entries) if (inside(other)) entries.delete(key);
    entries.set(entry.slice(0, 2 + places.length).join(), entry);
    ask(event);
  }
  /** Whether the square around a place contains that around another. */
  function covers(place, size, other, otherSize) {
    return place.every((at, k) => {
      if (places.length > 2 && k === 0) return at === other[k];
      const [low, otherLow] = [at - ((size - 1) >> 1), other[k] - ((otherSize - 1) >> 1)];
      return low <= otherLow && low + size >= otherLow + otherSize;
    });
  }

  function ask(event = null) {
    live.ask(event ? event.timeStamp : null);
    undo.disabled = former.length === 0;
    save();
  }

  // The picture.
  const index = h("input", { type: "number", min: 0, max: session.samples - 1, onchange: () => startFrom(Number(index.value)) });
  const step = (by, text, label) => h("button", { type: "button", "aria-label": label, onclick: () => startFrom(state.sample + by) }, text);
  function startFrom(which) {
    state.sample = Math.min(session.samples - 1, Math.max(0, Math.round(which) || 0));
    set();
  }
  const undo = h("button", { type: "button", disabled: true, onclick: () => {
    if (!former.length) return;
    [state.brush, state.paste] = former.pop();
    ask();
    context.say("The last stroke was undone");
  } }, "Undo stroke");
  const reset = h("button", { type: "button", onclick: () => {
    const { sample, frame, tool, size, amount, from, beside } = state;
    Object.assign(state, start(sample), { frame, tool, size, amount, from, beside });
    set();
    context.say("All changes were removed");
  } }, "Reset all");

  // The brush.
  const tool = choices("Click or drag in a map to", [["brush", "Add", "Add to one channel"], ["paste", "Paste", "Paste a patch of all channels from another picture"]], "brush", (value) => {
    state.tool = value;
    showTool();
    save();
  });
  const size = dial("size of the brush", { min: 1, max: LARGEST_BRUSH, step: 1, text: (value) => `${value}` }, (value) => { state.size = value; save(); });
  const amount = dial("add", { min: -RANGE, max: RANGE, step: 0.1, text: (value) => (value ? `${value > 0 ? "+" : ""}${number(value, 1)} σ` : "0 (erase)") }, (value) => { state.amount = value; save(); });
  const from = h("input", { type: "number", min: 0, max: session.samples - 1, onchange: () => {
    state.from = readIndex(from.value, session.samples) ?? 0;
    from.value = state.from;
    save();
  } });
  const fromField = field("from data sample", from);
  function showTool() {
    amount.root.hidden = state.tool !== "brush";
    fromField.hidden = state.tool !== "paste";
  }

  // The whole map.
  const longest = Math.max(...places);
  const noise = dial("noise", { min: 0, max: 1, step: 0.05, text: (value) => `${number(value)} σ` }, (value, event) => { state.noise = value; ask(event); });
  const again = h("button", { type: "button", onclick: (event) => { state.seed += 1; ask(event); } }, "Other noise");
  const keep = dial("blur (low-pass)", { min: 1, max: longest, step: 1, text: (value) => (value >= longest ? "off" : `${value} of ${longest} terms`) }, (value, event) => { state.keep = value / longest; ask(event); });
  const moment = dial("frame", { min: 0, max: Math.max(1, frames - 1), step: 1, text: (value) => `${value + 1} of ${frames}` }, (value, event) => {
    state.frame = value;
    drawMaps();
    if (look.frames) {
      origin.ask();
      live.ask(event.timeStamp);
    }
    save();
  });
  moment.root.hidden = frames < 2;
  const beside = choices("Maps on the right", Object.entries(BESIDE), "displacement", (value) => {
    state.beside = value;
    drawMaps();
    save();
  });

  /** Show the state in all controls, and ask for its answer. */
  function set() {
    former.length = 0;
    index.value = state.sample;
    from.value = state.from;
    for (const card of cards.values()) card.set();
    size.set(state.size);
    amount.set(state.amount);
    noise.set(state.noise);
    keep.set(Math.round(state.keep * longest));
    moment.set(state.frame);
    tool.choose(state.tool);
    beside.choose(state.beside);
    showTool();
    origin.ask();
    ask();
  }

  function save() {
    const asked = Object.fromEntries(Object.entries(changes()).map(([name, value]) => [name, Array.isArray(value) ? value.join(",") : value || null]));
    const query = { sample: state.sample, ...asked, keep: state.keep < 1 ? state.keep : null, frame: frame() || null };
    const usual = start(null);
    const settings = Object.fromEntries(["tool", "size", "amount", "from", "beside"].map((name) => [name, state[name] === usual[name] ? null : state[name]]));
    context.save({ ...query, frame: state.frame || null, ...settings }, ["channels", query]);
  }

  addCards(SHOWN);
  const root = h(
    "div",
    { className: "channels" },
    h(
      "div",
      { className: "stage" },
      figure(decoded, "D(z), decoded from the changed latents"),
      h("div", { className: "pair" }, figure(original, "data sample"), figure(difference, difference.caption)),
      factors,
      rings,
      timing,
    ),
    h(
      "div",
      { className: "controls" },
      h(
        "div",
        { className: "toolbar" },
        h("div", { className: "group" }, field("Data sample", index), step(-1, "‹", "Previous sample"), step(1, "›", "Next sample"), h("button", { type: "button", onclick: () => startFrom(Math.floor(Math.random() * session.samples)) }, "Random")),
        moment.root,
        h("div", { className: "group" }, noise.root, again),
        keep.root,
        h("div", { className: "group" }, undo, reset),
      ),
      h("div", { className: "toolbar" }, tool, size.root, amount.root, fromField, beside),
      readout,
      list,
      more,
      legend,
      h("p", { className: "hint" }, "σ is the standard deviation of a channel over pictures and places. A muted channel is its mean map. Solid line: brushed or pasted places; dashed: 90 % of the change of R(z), decoded and encoded again, lies within."),
      session.layout.note ? h("p", { className: "hint" }, session.layout.note) : null,
    ),
  );

  return {
    root,
    table: () => shown && { columns: ["channel", "mean", "std", "offset", "gain", "displaced"], rows: session.layout.mean.map((mean, channel) => [channel, mean, session.layout.std[channel], state.offset[channel], state.gain[channel], shown.displaced[channel]]) },
    show(parameters) {
      const numbers = (text, group) => (text && text.split(",").length % group === 0 ? readVector(text, text.split(",").length) : null) ?? [];
      const within = (value, low, high, otherwise) => (value !== undefined && value !== "" && Number(value) >= low && Number(value) <= high ? Number(value) : otherwise);
      const entries = (values, group) => new Map(Array.from({ length: values.length / group }, (_, k) => values.slice(k * group, (k + 1) * group)).map((entry) => [entry.slice(0, 2 + places.length).join(), entry]));
      const usual = start(readIndex(parameters.sample, session.samples) ?? session.start);
      Object.assign(state, usual, {
        offset: readVector(parameters.offset, count) ?? usual.offset,
        gain: readVector(parameters.gain, count) ?? usual.gain,
        mute: new Set(numbers(parameters.mute, 1).filter((channel) => Number.isInteger(channel) && channel >= 0 && channel < count)),
        brush: entries(numbers(parameters.brush, places.length + 3), places.length + 3),
        paste: entries(numbers(parameters.paste, places.length + 2), places.length + 2),
        noise: within(parameters.noise, 0, 10, 0),
        seed: readIndex(parameters.seed, 2 ** 31) ?? 0,
        keep: within(parameters.keep, 1 / longest, 1, 1),
        frame: readIndex(parameters.frame, frames) ?? 0,
        tool: parameters.tool === "paste" ? "paste" : "brush",
        size: Math.round(within(parameters.size, 1, LARGEST_BRUSH, 1)),
        amount: within(parameters.amount, -RANGE, RANGE, usual.amount),
        from: readIndex(parameters.from, session.samples) ?? 0,
        beside: Object.hasOwn(BESIDE, parameters.beside ?? "") ? parameters.beside : "displacement",
      });
      set();
    },
    recolour() {
      drawMaps();
      difference.recolour();
    },
  };
}

const BESIDE = { displacement: "R(z) − z", change: "change of R(z)" };

const figure = (picture, caption) => h("figure", {}, picture, h("figcaption", {}, caption));

/** A slider with its name and value. */
function dial(name, { min, max, step, text, label = name }, onchange) {
  const output = h("b"); // not a live region: the slider tells its value itself
  const range = h("input", { type: "range", min, max, step, "aria-label": label, oninput: (event) => {
    write();
    onchange(Number(range.value), event);
  } });
  const write = () => {
    output.textContent = text(Number(range.value));
    range.setAttribute("aria-valuetext", output.textContent);
  };
  const root = h("div", { className: "dial" }, h("span", { "aria-hidden": "true" }, h("span", {}, name), output), range);
  return {
    root,
    set(value) {
      range.value = value;
      write();
    },
  };
}

/** A map of one channel; with `brush` {size, onlook, onstart, onbrush} it can be drawn on. */
function latentMap(label, width, height, brush = null) {
  const canvas = h("canvas", { className: "pixels", width, height, role: "img", "aria-label": label, tabIndex: brush ? 0 : -1 });
  const lines = h("svg", { class: "outlines", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const cursor = h("path", { class: "cursor" });
  const rings = h("g", {});
  lines.append(rings, cursor);
  const root = h("div", { className: `latent-map ${brush ? "brushed" : ""}`, style: { "--aspect": height > 1 ? `${width} / ${height}` : "auto" } }, canvas, lines);
  root.canvas = canvas;
  root.draw = (values, most, outlines) => {
    paintNumbers(canvas, values, width, height, { kind: "signed", most });
    canvas.classList.remove("failed");
    rings.replaceChildren(...outlines.map(([name, d]) => h("path", { class: name, d })));
  };
  root.blank = () => {
    canvas.getContext("2d").clearRect(0, 0, width, height);
    canvas.classList.add("failed");
    rings.replaceChildren();
  };
  if (!brush) return root;

  let at = null; // the place under the hand or the cursor
  let drawing = false;
  const point = (x, y) => {
    at = [x, y];
    const [left, top, side] = [x - ((brush.size() - 1) >> 1), y - ((brush.size() - 1) >> 1), brush.size()];
    cursor.setAttribute("d", height > 1 ? `M${left} ${top}h${side}v${side}h${-side}z` : `M${left} 0h${side}v1h${-side}z`);
    brush.onlook(x, y);
  };
  const placeOf = (event) => {
    const box = canvas.getBoundingClientRect();
    const cell = (share, length) => Math.min(length - 1, Math.max(0, Math.floor(share * length)));
    return [cell((event.clientX - box.left) / box.width, width), cell((event.clientY - box.top) / box.height, height)];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    drawing = true;
    canvas.setPointerCapture(event.pointerId);
    brush.onstart();
    point(...placeOf(event));
    brush.onbrush(...at, event);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = placeOf(event);
    if (at && at[0] === x && at[1] === y) return;
    const before = at ?? [x, y];
    point(x, y);
    if (!drawing) return;
    // All places on the way: a fast hand skips some.
    const steps = Math.max(Math.abs(x - before[0]), Math.abs(y - before[1]));
    for (let k = 1; k <= steps; k++) brush.onbrush(Math.round(before[0] + ((x - before[0]) * k) / steps), Math.round(before[1] + ((y - before[1]) * k) / steps), event);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (drawing = false));
  const leave = () => {
    at = null;
    cursor.setAttribute("d", "");
  };
  canvas.addEventListener("pointerleave", () => drawing || leave());
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const [x, y] = at ?? [width >> 1, height >> 1];
    if (by) point(Math.min(width - 1, Math.max(0, x + by[0])), Math.min(height - 1, Math.max(0, y + by[1])));
    else if (event.key === "Enter" || event.key === " ") {
      point(x, y);
      brush.onstart();
      brush.onbrush(x, y, event);
    } else return;
    event.preventDefault();
  });
  return root;
}

/** The border of all places up to a distance, as a path. */
function outline(distance, most, width, height) {
  const inside = (x, y) => x >= 0 && y >= 0 && x < width && y < height && distance[y * width + x] <= most;
  let path = "";
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (!inside(x, y)) continue;
      if (!inside(x, y - 1)) path += `M${x} ${y}h1`;
      if (!inside(x, y + 1)) path += `M${x} ${y + 1}h1`;
      if (!inside(x - 1, y)) path += `M${x} ${y}v1`;
      if (!inside(x + 1, y)) path += `M${x + 1} ${y}v1`;
    }
  }
  return path;
}

/** |ΔD|: a map of pictures, or a line of rows. */
function differencePicture(look) {
  const label = "Difference from the picture without the changes";
  const picture = look.kind === "picture";
  const element = picture ? h("canvas", { className: "picture", role: "img", width: look.shape[2], height: look.shape[1], style: { "--size": "136px" } }) : h("div", { className: "row-plot", role: "img", style: { "--size": "136px" } });
  let last = null;
  element.caption = h("span", {}, "|ΔD|");
  element.show = (data) => {
    last = data;
    const values = readHalves(data);
    const largest = values.reduce((most, value) => Math.max(most, value), 0);
    const text = largest ? `largest ${number(100 * largest, largest < 0.1 ? 1 : 0)} % of the range` : "no change";
    // A difference that nobody could see is no bright picture.
    if (picture) paintNumbers(element, values, data.shape[1], data.shape[0], { kind: "amount", most: Math.max(0.02, largest) });
    else element.replaceChildren(lines([{ values: [...values], className: "two" }], { low: 0, high: 0.02, width: 204, height: 136, bare: true }));
    element.caption.textContent = `|ΔD|, ${text}`;
    element.classList.remove("failed");
    element.setAttribute("aria-label", `${label}: ${text}`);
  };
  element.blank = () => {
    last = null;
    if (picture) element.getContext("2d").clearRect(0, 0, element.width, element.height);
    else element.replaceChildren();
    element.classList.add("failed");
    element.caption.textContent = "|ΔD|";
    element.setAttribute("aria-label", `${label}: no answer`);
  };
  element.recolour = () => last && element.show(last);
  return element;
}
