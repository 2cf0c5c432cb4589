// Codes: all recorded codes in a plane, coloured, with the observation under the pointer, a lasso,
// and a table of what it encloses.

import { css, factorColours, rgb, spectrum } from "./colour.js";
import { Latest, api, busy, choices, field, h, number, readFloats, readIndex, readVector } from "./core.js";
import { observation, paint } from "./draw.js";
import { displacement } from "./latents.js";
import { Scatter, pack } from "./scatter.js";
import { FORMATS, selectionTable } from "./selection.js";

const DWELL = 250; // milliseconds on a point until it is decoded
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export function make(context) {
  const { session, look } = context;
  const latents = session.latents.map((row) => [row.latent, `z${row.latent}${row.type ? ` · ${row.type}` : ""}`]);
  const everyFactor = { factor: session.factors, label: session.labels };
  const state = { method: "pca", first: null, second: null, by: "none", window: null, pictures: false };
  let answer = null; // where the codes lie
  let colouring = null; // {name, values, colour(value), legend, continuous}
  let selection = []; // sample numbers, ascending
  let pinned = false; // whether the card stays
  let mode = "move";

  const canvas = h("canvas", { className: "scatter", tabIndex: 0, role: "application", "aria-label": "Map of the codes. Arrow keys go from code to code, Enter keeps the sample shown, plus and minus zoom, 0 shows all, S selects what is visible, Escape clears." });
  const scatter = new Scatter(canvas);
  canvas.drawing = () => scatter.drawing();
  const layoutStatus = busy();
  const colourStatus = busy();
  const umapStatus = h("p", { className: "busy", role: "status", hidden: true });
  const legends = h("div", { className: "legends" });
  const card = h("div", { className: "card", hidden: true });
  const instructions = h("p", { className: "hint instructions" }, "Each point is the code of one observation. Hover over a point, or tap it, to see the observation; click to keep it. Wheel or two fingers zoom, a double click shows all.");

  // Where the codes lie.
  let waiting = null; // until UMAP is asked for again
  const layout = new Latest(
    async (signal) => {
      clearTimeout(waiting);
      const { method, first, second } = state;
      const parameters = method === "umap" ? { method } : { method, first, second };
      const reply = await layoutStatus.during("Laying out the codes …", api("overview", parameters, signal));
      umapStatus.hidden = reply.ready;
      if (!reply.ready) {
        umapStatus.textContent = `Computing UMAP of ${session.samples.toLocaleString("en")} codes, once: ${Math.round(reply.seconds)} s …`;
        waiting = setTimeout(() => state.method === "umap" && canvas.isConnected && layout.ask(), 1000);
        return;
      }
      answer = reply;
      const equal = !reply.stacked && (method !== "latents" || session.prior !== null);
      scatter.setPoints(readFloats(reply.x), readFloats(reply.y), reply.names, equal);
      scatter.window = state.window;
      canvas.classList.remove("failed");
      if (method !== "umap") [state.first, state.second] = reply.axes;
      fillAxes();
      showColours();
      scatter.render();
      askPictures();
      keep();
    },
    (error) => {
      answer = null;
      umapStatus.hidden = true;
      scatter.setPoints(new Float32Array(0), new Float32Array(0), ["", ""], true);
      canvas.width = canvas.height; // clears it
      canvas.classList.add("failed");
      legends.replaceChildren();
      hideCard();
      context.fail(error);
    },
    { abort: true },
  );

  // What colours them.
  const colours = new Latest(
    async (signal) => {
      const [of, index] = state.by.split(":");
      if (of === "none") colouring = null;
      else {
        const text = of === "holes" ? "Decoding and encoding every code …" : "Computing the colours …";
        colouring = await colourStatus.during(text, api("colours", { of, index: index === undefined ? undefined : Number(index) }, signal));
        colouring.values = readFloats(colouring.values);
      }
      showColours();
    },
    (error) => {
      colouring = null;
      showColours();
      context.fail(error);
    },
    { abort: true },
  );

  /** A colour for every point, and the legend. */
  function showColours() {
    if (!answer) return;
    const count = scatter.count;
    if (!colouring) {
      scatter.colours = new Uint32Array(count).fill(pack(parseColour(css("--one"))));
      legends.replaceChildren();
      return scatter.render();
    }
    const { values } = colouring;
    const distinct = new Set(values);
    const table = factorColours({ kind: colouring.kind, values: colouring.words }, values);
    if (!table.continuous) {
      const packed = new Map([...distinct].map((value) => [value, pack(parseColour(table.colour(value)))]));
      scatter.colours = Uint32Array.from(values, (value) => packed.get(value));
      const order = [...distinct].sort((a, b) => a - b);
      legends.replaceChildren(
        h("div", { className: "legend chips" }, h("span", { className: "hint" }, colouring.name), table.legend.map(([text, colour], k) =>
          h("button", { type: "button", className: "chip", title: `Select ${text}`, onclick: () => select(indicesOf(values, order[k])) }, h("i", { style: { background: colour } }), text))),
      );
    } else {
      // Rare extremes may exceed the range.
      const sorted = Float32Array.from(values).sort();
      const end = (share) => sorted[Math.round(share * (sorted.length - 1))];
      const [low, high] = colouring.kind === "continuous" ? [end(0.01), end(0.99)] : [end(0), end(1)];
      const ramp = Uint32Array.from({ length: 256 }, (_, k) => pack(spectrum(k / 255)));
      const share = (value) => (high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) : 0.5);
      scatter.colours = Uint32Array.from(values, (value) => ramp[Math.round(255 * share(value))]);
      const name = (value) => colouring.words[Math.round(value)] ?? number(value);
      const bar = h("canvas", { className: "colour-bar", width: 128, height: 1, role: "img", "aria-label": `${colouring.name}: from ${name(low)} to ${name(high)}` });
      const paper = bar.getContext("2d");
      for (let k = 0; k < 128; k++) {
        paper.fillStyle = rgb(spectrum(k / 127));
        paper.fillRect(k, 0, 1, 1);
      }
      legends.replaceChildren(h("div", { className: "legend" }, h("span", {}, name(low)), bar, h("span", {}, name(high)), h("span", { className: "hint" }, `${colouring.name}${colouring.of === "holes" ? ": how far a code moves when it is decoded and encoded again (1 = typical)" : ""}`)));
    }
    scatter.render();
  }

  // The observation of a code.
  const small = observation(look, { size: 104, label: "The observation" });
  const decoded = observation(look, { size: 104, label: "Decoded from its code" });
  const decodedFigure = h("figure", { hidden: true }, decoded, h("figcaption", {}, "decoded"));
  const cardTitle = h("h3", {});
  const facts = h("p", { className: "hint" });
  const verdict = h("div", { className: "meter" });
  const openButton = h("button", { type: "button", onclick: () => context.go(session.maps ? "channels" : session.layout ? "channels" : "latents", { sample: scatter.current }) }, session.layout ? "Open in Channels" : "Open in Latents");
  card.append(cardTitle, h("div", { className: "pair" }, h("figure", {}, small, h("figcaption", {}, "data")), decodedFigure), facts, verdict, openButton);
  let dwelling = null;
  const sample = new Latest(
    async (index) => {
      const reply = await api("sample", { index });
      if (index !== scatter.current) return;
      small.show(reply.observation);
      cardTitle.textContent = `Sample ${index}`;
      facts.textContent = factsOf(reply).join(", ");
      verdict.replaceChildren();
      decodedFigure.hidden = true;
      card.hidden = false;
      place();
      context.say(`Sample ${index}. ${factsOf(reply).join(", ")}`);
      clearTimeout(dwelling);
      if (!session.layout) dwelling = setTimeout(() => index === scatter.current && decode.ask(index), DWELL);
    },
    (error) => {
      hideCard();
      context.fail(error);
    },
  );
  const decode = new Latest(
    async (index) => {
      const reply = await api("latents", { sample: index });
      if (index !== scatter.current) return;
      decoded.show(reply.decoded);
      decodedFigure.hidden = false;
      verdict.replaceChildren();
      if (reply.displacement) {
        const [title, , percentage] = displacement(reply.displacement);
        title.firstChild.textContent = `hole score ${number(reply.displacement.ratio)}`;
        verdict.append(title, percentage);
      }
      place();
    },
    (error) => {
      decodedFigure.hidden = true;
      verdict.replaceChildren();
      context.fail(error);
    },
  );
  function factsOf(reply) {
    const values = session.factors.map((factor, k) => `${factor.name} ${factor.values[reply.factors[k]] ?? number(reply.factors[k], factor.kind === "continuous" ? 2 : 0)}`);
    if (colouring && colouring.of !== "factor") {
      const value = colouring.values[reply.index];
      values.unshift(`${colouring.name} ${colouring.words[value] ?? number(value, colouring.kind === "continuous" ? 2 : 0)}`);
    }
    return [`row ${reply.row} of the data`, ...values];
  }
  function point(index) {
    if (index === scatter.current && !card.hidden) return;
    scatter.current = index;
    scatter.render();
    if (index < 0) hideCard();
    else sample.ask(index);
  }
  function hideCard() {
    pinned = false;
    clearTimeout(dwelling);
    card.hidden = true;
    scatter.current = -1;
    scatter.render();
  }
  /** Beside the point. */
  function place() {
    card.classList.toggle("pinned", pinned);
    openButton.hidden = !pinned;
    if (scatter.current < 0 || !scatter.window) return;
    const [x, y] = [scatter.px(scatter.x[scatter.current]), scatter.py(scatter.y[scatter.current])];
    // On the side that is farther from the middle, where there are fewer points.
    const room = canvas.clientWidth;
    const [left0, right0] = [x - 16 - card.offsetWidth, x + 16];
    const fits = right0 + card.offsetWidth <= room;
    const left = x < room / 2 ? (left0 >= 0 ? left0 : right0) : fits ? right0 : left0;
    card.style.left = `${Math.max(0, Math.min(left, room - card.offsetWidth))}px`;
    card.style.top = `${Math.max(0, Math.min(y - 20, canvas.clientHeight - card.offsetHeight))}px`;
  }

  // Small pictures on the map.
  const thumbnails = new Map();
  const askThumbnails = new Latest(
    async (signal) => {
      const missing = scatter.squares().map(([k]) => k).filter((k) => !thumbnails.has(k)).slice(0, 256);
      if (!missing.length) return;
      const reply = await api("pictures", { samples: missing, side: 40 }, signal);
      reply.samples.forEach((k, at) => {
        const picture = document.createElement("canvas");
        paint(picture, reply.observations[at]);
        thumbnails.set(k, picture);
      });
      scatter.render();
    },
    context.fail,
    { abort: true },
  );
  let still = null;
  function askPictures() {
    scatter.pictures = state.pictures ? thumbnails : null;
    scatter.render();
    clearTimeout(still);
    if (state.pictures) still = setTimeout(() => answer && scatter.window && askThumbnails.ask(), 120);
  }

  // Pointers: a drag moves the map or draws a lasso, two fingers zoom, a click keeps the sample shown.
  const pointers = new Map();
  let drag = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !answer) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, at(event));
    const [x, y] = at(event);
    if (pointers.size === 2) {
      drag = null;
      scatter.lasso = null;
    } else if (pointers.size === 1) drag = { x, y, moved: false, lasso: mode === "lasso" || event.shiftKey, add: event.shiftKey && mode === "lasso" };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!answer) return;
    const [x, y] = at(event);
    if (pointers.size === 2 && pointers.has(event.pointerId)) return pinch(event.pointerId, [x, y]);
    if (!drag) {
      if (!pinned && event.pointerType !== "touch") point(scatter.pick(x, y));
      return;
    }
    if (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < 4) return;
    drag.moved = true;
    if (drag.lasso) {
      scatter.lasso ??= [[drag.x, drag.y]];
      scatter.lasso.push([x, y]);
      scatter.render();
    } else {
      scatter.move(x - drag.x, y - drag.y);
      [drag.x, drag.y] = [x, y];
      moved();
    }
  });
  function pinch(id, [x, y]) {
    const [other] = [...pointers].filter(([each]) => each !== id).map(([, spot]) => spot);
    const before = pointers.get(id);
    pointers.set(id, [x, y]);
    const far = (one) => Math.hypot(one[0] - other[0], one[1] - other[1]) || 1;
    scatter.zoom(far([x, y]) / far(before), (x + other[0]) / 2, (y + other[1]) / 2);
    scatter.move((x - before[0]) / 2, (y - before[1]) / 2);
    moved();
  }
  canvas.addEventListener("pointerup", (event) => {
    pointers.delete(event.pointerId);
    if (!drag) return;
    const { moved, lasso, add, x, y } = drag;
    drag = null;
    if (lasso && moved) {
      const inside = scatter.inside(scatter.lasso);
      scatter.lasso = null;
      select(add ? [...selection, ...inside] : inside);
    } else if (!moved) {
      const index = scatter.pick(x, y, event.pointerType === "touch" ? 24 : 14);
      pinned = index >= 0;
      if (index === scatter.current && index >= 0) place();
      point(index);
    }
  });
  canvas.addEventListener("pointercancel", (event) => {
    pointers.delete(event.pointerId);
    drag = null;
    scatter.lasso = null;
    scatter.render();
  });
  canvas.addEventListener("pointerleave", () => !pinned && !drag && hideCard());
  canvas.addEventListener("dblclick", () => reset());
  canvas.addEventListener("wheel", (event) => {
    if (!answer) return;
    event.preventDefault();
    scatter.zoom(Math.exp(-0.0016 * event.deltaY * (event.deltaMode ? 20 : 1)), ...at(event));
    moved();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (!answer || event.ctrlKey || event.metaKey || event.altKey) return;
    const middle = [canvas.clientWidth / 2, canvas.clientHeight / 2];
    const step = ARROWS[event.key];
    if (step && event.shiftKey) scatter.move(-60 * step[0], -60 * step[1]), moved();
    else if (step) {
      pinned = true;
      point(scatter.next(step));
    } else if (event.key === "+" || event.key === "=") scatter.zoom(1.4, ...middle), moved();
    else if (event.key === "-") scatter.zoom(1 / 1.4, ...middle), moved();
    else if (event.key === "0") reset();
    else if (event.key === "s" || event.key === "S") select(scatter.inside());
    else if (event.key === "Escape") {
      if (card.hidden) select([]);
      else hideCard();
    } else if (event.key === "Enter" && !card.hidden) {
      pinned = true;
      place();
      openButton.focus();
    } else return;
    event.preventDefault();
  });
  card.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    hideCard();
    canvas.focus();
  });
  function moved() {
    if (pinned) place();
    else hideCard();
    state.window = scatter.window;
    askPictures();
    keep();
  }
  function reset() {
    if (!answer) return;
    scatter.reset();
    moved();
    state.window = null;
    keep();
  }

  // The selected codes.
  const chosen = selectionTable(context, { show: (index) => show(index), clear: () => select([]) });
  function select(points) {
    selection = [...new Set(points)].sort((a, b) => a - b);
    scatter.selected = null;
    if (selection.length) {
      scatter.selected = new Uint8Array(scatter.count);
      for (const k of selection) scatter.selected[k] = 1;
    }
    scatter.render();
    context.say(selection.length ? `${selection.length} codes selected` : "Nothing selected");
    chosen.ask(selection);
  }
  function show(index) {
    pinned = true;
    point(index);
    canvas.scrollIntoView({ block: "nearest" });
  }

  // Controls.
  const method = h("select", { onchange: () => update({ method: method.value, first: null, second: null, window: null }) },
    h("option", { value: "pca" }, "Principal components"), h("option", { value: "umap" }, "UMAP"), session.layout ? null : h("option", { value: "latents" }, latents.length === 1 ? "The latent" : "Two latents"));
  const axes = [0, 1].map((k) => h("select", { onchange: (event) => chooseAxis(k, Number(event.target.value)) }));
  const axisFields = ["x axis", "y axis"].map((text, k) => field(text, axes[k]));
  function chooseAxis(k, value) {
    const both = [state.first, state.second];
    if (both[1 - k] === value) both[1 - k] = both[k]; // exchanges them
    both[k] = value;
    update({ first: both[0], second: both[1], window: null });
  }
  function fillAxes() {
    const options = state.method === "latents" ? latents : (answer?.shares ?? []).map((share, k) => [k, `${k + 1} (${number(100 * share, 0)} %)`]);
    axisFields.forEach((each, k) => {
      each.hidden = state.method === "umap" || (k === 1 && options.length < 2);
      each.querySelector("label").textContent = `${state.method === "pca" ? "component on the " : ""}${"xy"[k]} axis`;
    });
    [state.first, state.second].forEach((value, k) => axes[k].replaceChildren(...options.map(([key, text]) => h("option", { value: key, selected: key === value }, text))));
  }
  const options = (entries) => entries.map(([value, text]) => h("option", { value }, text));
  const group = (label, entries) => (entries.length ? h("optgroup", { label }, options(entries)) : null);
  const named = (of) => everyFactor[of].map((factor, k) => [`${of}:${k}`, factor.name]);
  const perSample = [...(session.no_hole_scores ? [] : [["holes", "hole score"]]), ...(session.spreads && !session.layout ? [["precise", "number of active latents"]] : [])];
  const by = h("select", { onchange: () => update({ by: by.value }, false) },
    options([["none", "nothing"]]), group("Own labels", named("label")), group("Factors", named("factor")), group("Of each sample", perSample),
    group("Value of a latent", latents.map(([j, text]) => [`latent:${j}`, text])),
    group("Posterior std of a latent", session.spreads ? latents.map(([j, text]) => [`spread:${j}`, text]) : []));
  const pictures = h("input", { type: "checkbox", onchange: () => update({ pictures: pictures.checked }, false) });
  const modes = choices("Drag to", [["move", "move", "Move the map; wheel or two fingers zoom, a double click shows all"], ["lasso", "select", "Draw a lasso around codes; with Shift, add them to the selection"]], mode, (value) => {
    mode = value;
    canvas.classList.toggle("selecting", value === "lasso");
  });

  function update(values, again = true) {
    Object.assign(state, values);
    refresh(again);
  }
  function refresh(again) {
    method.value = state.method;
    by.value = state.by;
    pictures.checked = state.pictures;
    if (again) {
      hideCard();
      umapStatus.hidden = true;
      for (const each of axisFields) each.hidden ||= state.method === "umap";
      layout.ask();
    }
    if (state.by !== (colouring ? (["holes", "precise"].includes(colouring.of) ? colouring.of : `${colouring.of}:${colouring.index}`) : "none")) colours.ask();
    askPictures();
    keep();
  }
  function keep() {
    const { first, second } = state;
    const plane = { method: state.method, ...(state.method === "umap" ? {} : { first, second }) };
    const window = state.window?.map((value) => Number(value.toPrecision(5))).join(",");
    context.save({ ...plane, by: state.by, window, pictures: state.pictures ? 1 : null }, ["overview", plane]);
  }

  new ResizeObserver(() => {
    if (state.window === null) scatter.window = null;
    scatter.render();
    askPictures();
  }).observe(canvas);
  const known = new Set([...by.options].map((option) => option.value));
  const root = h(
    "div",
    { className: "overview" },
    h("div", { className: "toolbar" }, field("Show", method), axisFields, field("Colour by", by), modes,
      h("div", { className: "group" }, h("button", { type: "button", onclick: reset }, "Show all"), h("button", { type: "button", onclick: () => answer && select(scatter.inside()) }, "Select what is visible")),
      look.kind === "picture" ? h("label", { className: "check" }, pictures, "Pictures on the map") : null,
      umapStatus, colourStatus),
    h("div", { className: "overview-body" },
      h("div", {}, h("div", { className: "scatter-holder" }, canvas, card, layoutStatus), legends, instructions),
      chosen.root),
  );

  return {
    root,
    shortcuts: [["← → ↑ ↓", "go from code to code (with Shift: move the map)"], ["+ − 0", "zoom in, zoom out, show all"], ["S", "select the codes that are visible"], ["Enter", "open the sample shown"], ["Esc", "hide the sample, then clear the selection"]],
    show(parameters) {
      const method = parameters.method;
      state.method = method === "umap" || (method === "latents" && !session.layout) ? method : "pca";
      state.first = readIndex(parameters.first, session.layout ? 10 : Math.max(10, latents.length));
      state.second = readIndex(parameters.second, session.layout ? 10 : Math.max(10, latents.length));
      const first = session.labels.length ? "label:0" : session.factors.length ? "factor:0" : "none";
      state.by = parameters.by !== undefined && known.has(parameters.by) ? parameters.by : first;
      state.window = readVector(parameters.window, 4);
      if (state.window && !(state.window[0] < state.window[1] && state.window[2] < state.window[3])) state.window = null;
      state.pictures = parameters.pictures === "1" && look.kind === "picture";
      refresh(true);
    },
    recolour() {
      showColours();
    },
    downloads: session.files.map((format) => [`All codes as ${FORMATS[format]}`, () => chosen.download(format)]),
  };
}

const parseColour = (text) => (text.startsWith("#") ? [1, 3, 5].map((k) => parseInt(text.slice(k, k + 2), 16)) : text.match(/[\d.]+/g).map(Number).slice(0, 3));

const indicesOf = (values, wanted) => Array.from(values.keys()).filter((k) => values[k] === wanted);
