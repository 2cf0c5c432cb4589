// Latents: sliders, the decoded observation, and the response of the encoder.

import { Latest, api, busy, field, h, number, precise, readIndex, readVector, reducedMotion, writeVector } from "./core.js";
import { observation, strip } from "./draw.js";
import { traversal } from "./traversal.js";

const SHOWN = 32;
const DRAWS = [["prior", "Prior"], ["posterior", "Posterior"], ["hybrid", "Hybrid"], ["uniform", "Uniform"]];

export function make(context) {
  const { session, look } = context;
  const count = session.latents.length;
  const rows = new Map();
  let z = null;
  let sample = null; // the data sample that z started from
  let edited = false; // whether z has been changed since
  let seed = 1;
  let response = null; // R(z) of the code that is drawn
  let animation = 0; // the number of the projection that is played

  // The observations: decoded from z, the data sample, decoded from R(z).
  const decoded = observation(look, { size: 288, label: "Decoded from z", table: true });
  decoded.classList.add("decoded");
  const original = observation(look, { size: 128, label: "The data sample" });
  const again = observation(look, { size: 128, label: "Decoded from R(z)" });
  const originalFigure = figure(original, "data sample");
  const meter = h("div", { className: "meter" });
  const timing = h("p", { className: "hint timing" });
  const factors = h("p", { className: "hint factors" });

  const live = new Latest(async (since) => {
    draw(await api("latents", { z }));
    if (since !== null) {
      // After the frame with the new picture is on the screen.
      requestAnimationFrame(() =>
        setTimeout(() => {
          const latency = performance.now() - since;
          timing.textContent = `slider to picture: ${Math.round(latency)} ms`;
          decoded.dataset.latency = latency.toFixed(1);
        }),
      );
    }
  }, failed);

  let shownSample = null;
  const origin = new Latest(async () => {
    const index = sample;
    if (index === null) {
      originalFigure.hidden = true;
      shownSample = null;
      factors.textContent = "";
      return;
    }
    const answer = await api("sample", { index });
    if (index !== sample) return; // the user has moved on
    shownSample = answer;
    originalFigure.hidden = false;
    original.show(answer.observation);
    factors.textContent = session.factors.map((factor, k) => `${factor.name} ${factor.values[answer.factors[k]] ?? number(answer.factors[k], factor.kind === "continuous" ? 2 : 0)}`).join(", ");
    if (z === null) set(answer.z, null);
    else if (look.kind === "row") live.ask(null);
  }, (error) => {
    shownSample = null;
    original.blank();
    factors.textContent = "";
    failed(error);
  });

  /** Remove what belongs to another code than the sliders'. */
  function failed(error) {
    response = null;
    decoded.blank();
    again.blank();
    for (const row of rows.values()) row.setResponse(null);
    meter.replaceChildren();
    timing.textContent = "";
    context.fail(error);
  }

  function draw(answer) {
    const others = [{ values: answer.decoded_response.values, className: "two", label: "from R(z)" }];
    if (shownSample && look.kind === "row") others.unshift({ values: shownSample.observation.values, className: "grey", label: "data" });
    decoded.show(answer.decoded, look.kind === "row" ? others : undefined);
    if (look.kind === "picture") again.show(answer.decoded_response);
    response = answer.response;
    for (const [latent, row] of rows) row.setResponse(response[latent]);
    meter.replaceChildren(...displacement(answer.displacement, session.no_hole_scores));
  }

  // Sliders, the most important latent first.
  const list = h("div", { className: "sliders", role: "group", "aria-label": "Latents, the most important first" });
  const more = h("button", { type: "button", onclick: () => addSliders(rows.size + SHOWN) });
  function addSliders(to) {
    for (const about of session.latents.slice(rows.size, to)) {
      const row = slider(about, (value, event) => {
        stop();
        z[about.latent] = value;
        edited = true;
        live.ask(event ? event.timeStamp : null);
        save();
      }, () => traverse(about.latent));
      rows.set(about.latent, row);
      list.append(row.root);
      if (z) row.set(z[about.latent]);
    }
    more.hidden = rows.size >= count;
    more.textContent = `Show more of the ${count} latents`;
  }
  addSliders(SHOWN);

  const trace = traversal(context, { onpick: (latent, value) => { z[latent] = value; edited = true; apply(); } });
  let waiting = null;
  let shownLatent = null;
  function traverse(latent) {
    shownLatent = latent;
    clearTimeout(waiting);
    waiting = setTimeout(() => z && trace.show({ latent: shownLatent, z }), 120);
  }

  function set(values, from) {
    z = [...values];
    if (from !== undefined) edited = from !== null;
    for (const [latent, row] of rows) row.set(z[latent]);
    live.ask(null);
    save();
    if (shownLatent !== null) traverse(shownLatent);
  }
  const apply = () => set(z, undefined);

  function save() {
    const whole = edited || sample === null;
    context.save({ sample, z: whole && z ? writeVector(z) : null }, ["latents", whole && z && count <= 2000 ? { sample, z: z.map((value) => Math.round(value * 1e4) / 1e4).join(",") } : { sample }]);
  }

  // The code to start from.
  const index = h("input", { type: "number", min: 0, max: session.samples - 1, value: session.start, onchange: () => startFrom(Number(index.value)) });
  function startFrom(which) {
    stop();
    sample = Math.min(session.samples - 1, Math.max(0, Math.round(which) || 0));
    index.value = sample;
    z = null;
    origin.ask();
    projection.replaceChildren();
  }
  const step = (by, text, label) => h("button", { type: "button", "aria-label": label, onclick: () => startFrom((sample ?? session.start) + by) }, text);
  const draws = DRAWS.filter(([source]) => source !== "prior" || session.prior !== null).map(([source, text]) =>
    h("button", { type: "button", dataset: { source }, onclick: () => drawFrom(source) }, text),
  );
  async function drawFrom(source) {
    stop();
    try {
      const answer = await api("draw", { source, seed: seed++ });
      sample = null;
      index.value = "";
      projection.replaceChildren();
      origin.ask();
      set(answer.z, true);
      context.say(`New code drawn from: ${source}`);
    } catch (error) {
      context.fail(error);
    }
  }

  // The response, repeatedly, until the code is self-consistent.
  const projection = h("div", { className: "projection" });
  const working = busy();
  const project = h("button", { type: "button", className: "primary", onclick: projectCode }, "Make self-consistent");
  async function projectCode() {
    stop();
    const own = ++animation;
    try {
      const answer = await working.during("Decoding and encoding repeatedly …", api("project", { z }));
      if (own !== animation) return;
      const passes = answer.steps.length;
      projection.replaceChildren(
        h("h3", {}, "Decoded and encoded repeatedly"),
        strip(look, answer.frames.map((frame) => frame.decoded), { captions: answer.frames.map((frame) => `${frame.pass}`), label: "pass" }),
        h("p", { className: "hint" }, answer.converged ? `Self-consistent after ${passes} ${passes === 1 ? "pass" : "passes"}; the first moved it by ${precise(answer.steps[0])}. ${fromData(answer.displacement)}` : `Not converged after ${passes} passes; the last moved it by ${precise(answer.steps.at(-1))}.`),
      );
      if (!reducedMotion()) {
        for (const frame of answer.frames) {
          if (own !== animation) return;
          for (const [latent, row] of rows) row.set(answer.codes[frame.pass][latent]);
          decoded.show(frame.decoded);
          await new Promise((resolve) => setTimeout(resolve, 60));
        }
      }
      if (own !== animation) return;
      set(answer.codes.at(-1), true);
      context.say(answer.converged ? `Converged after ${passes} passes` : `Not converged after ${passes} passes`);
    } catch (error) {
      projection.replaceChildren();
      context.fail(error);
    }
  }
  function stop() {
    animation++;
    context.clear("project"); // the code that it failed for has changed
  }

  /** Focus the slider of a latent, and move it by some of its steps. */
  function choose(latent, steps = 0) {
    const range = document.getElementById(`slider-${latent}`);
    range?.focus();
    if (!range || !steps) return;
    range.value = Number(range.value) + 10 * steps * Number(range.step);
    for (const name of ["input", "change"]) range.dispatchEvent(new Event(name, { bubbles: true }));
  }
  function press({ key, target }) {
    const digit = "1234567890".indexOf(key);
    const arrow = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (digit >= 0 && digit < rows.size && key.length === 1) choose([...rows.keys()][digit]);
    else if (arrow && !target.closest("input, button, a, summary, [role=tab], canvas")) choose(shownLatent, arrow);
    else if (key === "n" || key === "p") startFrom((sample ?? session.start) + (key === "n" ? 1 : -1));
    else if (key === "r") startFrom(Math.floor(Math.random() * session.samples));
    else return false;
    return true;
  }

  const root = h(
    "div",
    { className: "latents" },
    h(
      "div",
      { className: look.kind === "row" ? "stage rows" : "stage" },
      figure(decoded, "decoded from z"),
      look.kind === "picture" ? h("div", { className: "pair" }, originalFigure, figure(again, "decoded from R(z)")) : null,
      factors,
      meter,
      timing,
    ),
    h(
      "div",
      { className: "controls" },
      h(
        "div",
        { className: "toolbar" },
        h("div", { className: "group" }, field("Data sample", index), step(-1, "‹", "Previous sample"), step(1, "›", "Next sample"), h("button", { type: "button", onclick: () => startFrom(Math.floor(Math.random() * session.samples)) }, "Random")),
        h("div", { className: "group", role: "group", "aria-label": "Draw a random code" }, h("span", { className: "legend-text" }, "Draw from"), draws),
        project,
        working,
      ),
      h("p", { className: "key" }, h("span", { className: "key-one" }, "z"), h("span", { className: "key-two" }, "R(z): decoded and encoded again")),
      list,
      more,
      projection,
      trace.root,
    ),
  );

  return {
    root,
    press,
    shortcuts: [["1 … 9 0", "choose one of the first ten latents"], ["← →", "move the chosen latent"], ["n p", "the next and the previous sample"], ["r", "a random sample"]],
    table: () => z && response && { columns: ["latent", "type", "z", "response"], rows: session.latents.map(({ latent, type }) => [latent, type ?? "", z[latent], response[latent]]) },
    show(parameters) {
      stop();
      const vector = readVector(parameters.z, count);
      sample = readIndex(parameters.sample, session.samples);
      if (sample === null && !vector) sample = session.start;
      index.value = sample ?? "";
      edited = vector !== null;
      shownLatent ??= session.latents[0].latent;
      z = vector;
      if (vector) set(vector, true);
      origin.ask();
    },
  };
}

function figure(picture, caption) {
  return h("figure", {}, picture, h("figcaption", {}, caption));
}

/** The displacement of a code, in words and as a bar; without one, the reason. */
export function displacement(answer, reason) {
  if (!answer) return [h("p", { className: "hint" }, reason ?? "")];
  const percentage = answer.percentile;
  return [
    h("p", {}, h("strong", {}, `‖R(z) − z‖ = ${number(answer.distance)}`), answer.hole ? h("span", { className: "tag hole" }, "in a hole") : answer.unlike ? h("span", { className: "tag hole" }, "self-consistent, unlike data") : h("span", { className: "tag fine" }, percentage > 90 ? "like data, at the edge" : "self-consistent, like data")),
    h("meter", { min: 0, max: 100, value: percentage, low: 90, high: 99, optimum: 0, "aria-label": "Percentage of posterior samples that move less" }),
    h("p", { className: "hint" }, `moves further than ${number(percentage, 0)} % of posterior samples`),
    h("p", { className: "hint" }, fromData(answer)),
  ];
}

/** How far a code and what it decodes to are from data, in words. */
export function fromData(answer) {
  if (!answer) return "";
  const code = `The code lies ${number(answer.from_codes, 1)}`;
  return answer.from_data === null ? `${code} times the usual spacing away from codes of data.` : `${code} and the decoded observation ${number(answer.from_data, 1)} times the usual spacing away from data${answer.unlike ? ": unlike data" : ""}.`;
}

/** Number inputs do not accept a typographic minus. */
const fixed = (value) => value.toFixed(2).replace(/^-0\.00$/, "0.00");

function slider(about, onchange, onsettle) {
  const { latent } = about;
  let low = about.low;
  let high = about.high;
  const id = `slider-${latent}`;
  const range = h("input", { type: "range", id, min: low, max: high, step: (high - low) / 400 });
  const box = h("input", { type: "number", step: 0.1, "aria-label": `Value of latent ${latent}` });
  const valueBar = h("div", { className: "bar one" });
  const responseBar = h("div", { className: "bar two" });
  const zero = h("div", { className: "zero" });
  const response = h("output", { className: "response", htmlFor: id, title: "R(z): the latent after decoding and encoding again" });
  const share = (value) => (100 * (Math.min(high, Math.max(low, value)) - low)) / (high - low);
  const bar = (element, value) => {
    const origin = share(0);
    const end = share(value);
    element.style.left = `${Math.min(origin, end)}%`;
    element.style.width = `${Math.abs(end - origin)}%`;
  };
  zero.style.left = `${share(0)}%`;
  const place = (value) => {
    if (value < low || value > high) {
      low = Math.min(low, value);
      high = Math.max(high, value);
      Object.assign(range, { min: low, max: high, step: (high - low) / 400 });
      zero.style.left = `${share(0)}%`;
    }
    range.value = value;
    bar(valueBar, value);
  };
  range.addEventListener("input", (event) => {
    const value = Number(range.value);
    box.value = fixed(value);
    bar(valueBar, value);
    onchange(value, event);
  });
  range.addEventListener("change", onsettle);
  range.addEventListener("focus", onsettle);
  box.addEventListener("change", (event) => {
    const value = Number(box.value);
    if (!Number.isFinite(value) || box.value === "") return;
    place(value);
    onchange(value, event);
    onsettle();
  });
  const facts = about.kl !== undefined ? `${number(about.kl)} nats` : about.response !== undefined ? `response ${number(about.response)}` : `spread ${number(about.spread)}`;
  const root = h(
    "div",
    { className: `latent ${about.type ?? ""}`, dataset: { latent } },
    h("label", { htmlFor: id }, h("b", {}, `z${latent}`), about.type ? h("span", { className: `tag ${about.type}` }, about.type) : null, h("span", { className: "hint" }, facts)),
    h("div", { className: "track" }, range, h("div", { className: "bars" }, zero, valueBar, responseBar)),
    box,
    response,
  );
  return {
    root,
    set(value) {
      place(value);
      box.value = fixed(value);
    },
    setResponse(value) {
      bar(responseBar, value ?? 0);
      response.textContent = number(value);
    },
  };
}
