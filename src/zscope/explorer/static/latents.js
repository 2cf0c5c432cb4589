// Latents: sliders, the decoded observation, and what the encoder makes of it.

import { Latest, api, busy, calm, field, h, number, precise, readIndex, readVector, writeVector } from "./core.js";
import { observation, strip } from "./draw.js";
import { traversal } from "./traversal.js";

const SHOWN = 32;
const DRAWS = [["prior", "Prior"], ["posterior", "Posterior"], ["hybrid", "Hybrid"], ["uniform", "Uniform"]];

export function make(context) {
  const { session, look } = context;
  const count = session.latents.length;
  const rows = new Map();
  let z = null;
  let sample = null; // the data sample the code came from
  let touched = false; // whether it has been changed since
  let seed = 1;
  let playing = 0;

  // The stage: what is decoded, from what, and what comes back.
  const decoded = observation(look, { size: 288, label: "Decoded from z", table: true });
  decoded.classList.add("decoded");
  const original = observation(look, { size: 128, label: "The data sample" });
  const again = observation(look, { size: 128, label: "Decoded from R(z)" });
  const originalFigure = figure(original, "data sample");
  const meter = h("div", { className: "meter" });
  const timing = h("p", { className: "hint timing" });
  const factors = h("p", { className: "hint factors" });

  const live = new Latest(async (since) => {
    const asked = { z, sample: null };
    try {
      const answer = await api("latents", asked);
      draw(answer);
      if (since !== null) {
        // After the frame with the new picture is on the screen.
        requestAnimationFrame(() =>
          setTimeout(() => {
            const took = performance.now() - since;
            timing.textContent = `slider to picture: ${Math.round(took)} ms`;
            decoded.dataset.latency = took.toFixed(1);
          }),
        );
      }
    } catch (error) {
      context.fail(error);
    }
  });

  let shownSample = null;
  const origin = new Latest(async () => {
    const asked = sample;
    if (asked === null) {
      originalFigure.hidden = true;
      shownSample = null;
      factors.textContent = "";
      return;
    }
    try {
      const found = await api("sample", { index: asked });
      if (asked !== sample) return; // another one is wanted by now
      shownSample = found;
      originalFigure.hidden = false;
      original.show(found.observation);
      factors.textContent = session.factors.map((factor, k) => `${factor.name} ${factor.values[found.factors[k]] ?? number(found.factors[k], factor.kind === "continuous" ? 2 : 0)}`).join(", ");
      if (z === null) set(found.z, null);
      else if (look.kind === "row") live.ask(null);
    } catch (error) {
      context.fail(error);
    }
  });

  function draw(answer) {
    const others = [{ values: answer.again.values, className: "two", label: "from R(z)" }];
    if (shownSample && look.kind === "row") others.unshift({ values: shownSample.observation.values, className: "grey", label: "data" });
    decoded.show(answer.decoded, look.kind === "row" ? others : undefined);
    if (look.kind === "picture") again.show(answer.again);
    for (const [latent, row] of rows) row.answer(answer.response[latent]);
    meter.replaceChildren(...moved(answer.moved, session.holes));
  }

  // Sliders, the most important latent first.
  const list = h("div", { className: "sliders", role: "group", "aria-label": "Latents, the most important first" });
  const more = h("button", { type: "button", onclick: () => grow(rows.size + SHOWN) });
  function grow(to) {
    for (const about of session.latents.slice(rows.size, to)) {
      const row = slider(about, (value, event) => {
        stop();
        z[about.latent] = value;
        touched = true;
        live.ask(event ? event.timeStamp : null);
        save();
      }, () => strips(about.latent));
      rows.set(about.latent, row);
      list.append(row.root);
      if (z) row.set(z[about.latent]);
    }
    more.hidden = rows.size >= count;
    more.textContent = `Show more of the ${count} latents`;
  }
  grow(SHOWN);

  const trace = traversal(context, { onpick: (latent, value) => { z[latent] = value; touched = true; apply(); } });
  let waiting = null;
  let shownLatent = null;
  function strips(latent) {
    shownLatent = latent;
    clearTimeout(waiting);
    waiting = setTimeout(() => z && trace.show({ latent: shownLatent, z }), 120);
  }

  function set(values, from) {
    z = [...values];
    if (from !== undefined) touched = from !== null;
    for (const [latent, row] of rows) row.set(z[latent]);
    live.ask(null);
    save();
    if (shownLatent !== null) strips(shownLatent);
  }
  const apply = () => set(z, undefined);

  function save() {
    const whole = touched || sample === null;
    context.save({ sample, z: whole && z ? writeVector(z) : null }, ["latents", whole && z && count <= 2000 ? { sample, z: z.map((value) => Math.round(value * 1e4) / 1e4).join(",") } : { sample }]);
  }

  // Where to start from.
  const index = h("input", { type: "number", min: 0, max: session.samples - 1, value: session.start, onchange: () => from(Number(index.value)) });
  function from(which) {
    stop();
    const chosen = Math.min(session.samples - 1, Math.max(0, Math.round(which) || 0));
    index.value = chosen;
    sample = chosen;
    z = null;
    origin.ask();
    way.replaceChildren();
  }
  const step = (by, text, label) => h("button", { type: "button", "aria-label": label, onclick: () => from((sample ?? session.start) + by) }, text);
  const draws = DRAWS.filter(([source]) => source !== "prior" || session.prior !== null).map(([source, text]) =>
    h("button", { type: "button", dataset: { source }, onclick: () => random(source) }, text),
  );
  async function random(source) {
    stop();
    try {
      const found = await api("draw", { source, seed: seed++ });
      sample = null;
      index.value = "";
      way.replaceChildren();
      origin.ask();
      set(found.z, true);
      context.say(`A new code from the ${source}`);
    } catch (error) {
      context.fail(error);
    }
  }

  // Onto the manifold: the response again and again.
  const way = h("div", { className: "way" });
  const working = busy();
  const project = h("button", { type: "button", className: "primary", onclick: onto }, "Project onto manifold");
  async function onto() {
    stop();
    const mine = ++playing;
    try {
      const found = await working.during("Decoding and encoding again and again …", api("project", { z }));
      if (mine !== playing) return;
      const passes = found.steps.length;
      way.replaceChildren(
        h("h3", {}, "The way onto the manifold"),
        strip(look, found.frames.map((frame) => frame.decoded), { captions: found.frames.map((frame) => `${frame.pass}`), label: "after passes:" }),
        h("p", { className: "hint" }, found.arrived ? `It came to rest after ${passes} ${passes === 1 ? "pass" : "passes"}, having moved ${precise(found.steps[0])} in the first.` : `Still moving by ${precise(found.steps.at(-1))} after ${passes} passes.`),
      );
      if (!calm()) {
        for (const frame of found.frames) {
          if (mine !== playing) return;
          for (const [latent, row] of rows) row.set(found.way[frame.pass][latent]);
          decoded.show(frame.decoded);
          await new Promise((resolve) => setTimeout(resolve, 60));
        }
      }
      if (mine !== playing) return;
      set(found.way.at(-1), true);
      context.say(found.arrived ? `Arrived after ${passes} passes` : `Not at rest after ${passes} passes`);
    } catch (error) {
      context.fail(error);
    }
  }
  function stop() {
    playing++;
    context.clear("project"); // the code it failed for is left
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
        h("div", { className: "group" }, field("Data sample", index), step(-1, "‹", "Previous sample"), step(1, "›", "Next sample"), h("button", { type: "button", onclick: () => from(Math.floor(Math.random() * session.samples)) }, "Random")),
        h("div", { className: "group", role: "group", "aria-label": "Draw a code at random" }, h("span", { className: "legend-text" }, "Draw from"), draws),
        project,
        working,
      ),
      h("p", { className: "key" }, h("span", { className: "key-one" }, "z, as decoded"), h("span", { className: "key-two" }, "R(z), as encoded again")),
      list,
      more,
      way,
      trace.root,
    ),
  );

  return {
    root,
    show(parameters) {
      stop();
      const given = readVector(parameters.z, count);
      sample = readIndex(parameters.sample, session.samples);
      if (sample === null && !given) sample = session.start;
      index.value = sample ?? "";
      touched = given !== null;
      shownLatent ??= session.latents[0].latent;
      z = given;
      if (given) set(given, true);
      origin.ask();
    },
    recolour() {},
  };
}

function figure(picture, caption) {
  return h("figure", {}, picture, h("figcaption", {}, caption));
}

/** How far a code moves, in words and as a bar. */
export function moved(found, reason) {
  if (!found) return [h("p", { className: "hint" }, reason ?? "")];
  const share = found.percentile;
  return [
    h("p", {}, h("strong", {}, `‖R(z) − z‖ = ${number(found.distance)}`), found.hole ? h("span", { className: "tag hole" }, "in a hole") : share > 90 ? h("span", { className: "tag" }, "at the edge") : h("span", { className: "tag fine" }, "on the manifold")),
    h("meter", { min: 0, max: 100, value: share, low: 90, high: 99, optimum: 0, "aria-label": "Share of posterior samples that move less" }),
    h("p", { className: "hint" }, `moves further than ${number(share, 0)} % of posterior samples`),
  ];
}

/** For number inputs, which take no typographic minus. */
const fixed = (value) => value.toFixed(2).replace(/^-0\.00$/, "0.00");

function slider(about, onchange, onsettle) {
  const { latent } = about;
  let low = about.low;
  let high = about.high;
  const id = `slider-${latent}`;
  const range = h("input", { type: "range", id, min: low, max: high, step: (high - low) / 400 });
  const box = h("input", { type: "number", step: 0.1, "aria-label": `Value of latent ${latent}` });
  const mine = h("div", { className: "bar one" });
  const theirs = h("div", { className: "bar two" });
  const zero = h("div", { className: "zero" });
  const answer = h("output", { className: "answer", htmlFor: id, title: "R(z): what the encoder answers" });
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
    bar(mine, value);
  };
  range.addEventListener("input", (event) => {
    const value = Number(range.value);
    box.value = fixed(value);
    bar(mine, value);
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
    h("div", { className: "track" }, range, h("div", { className: "bars" }, zero, mine, theirs)),
    box,
    answer,
  );
  return {
    root,
    set(value) {
      place(value);
      box.value = fixed(value);
    },
    answer(value) {
      bar(theirs, value);
      answer.textContent = number(value);
    },
  };
}
