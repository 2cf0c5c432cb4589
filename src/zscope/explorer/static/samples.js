// Samples: sheets of observations and of decoded draws, with their distance from data.

import { Latest, api, busy, choices, field, h, number, readIndex, select, writeVector } from "./core.js";
import { observation } from "./draw.js";
import { fromData } from "./latents.js";

/** How far the decoded observation is from data; without data, the code from codes. */
const distance = (score) => score.from_data ?? score.from_codes;

const SOURCES = [
  ["data", "Data", "recorded observations, scored by their codes"],
  ["prior", "Prior", "z drawn from N(0, I)"],
  ["posterior", "Posterior", "z drawn from q(z | x) of recorded observations"],
  ["hybrid", "Hybrid", "each latent drawn independently from its recorded values"],
  ["uniform", "Uniform", "each latent drawn uniformly between its smallest and largest recorded value"],
];

export function make(context) {
  const { session, look } = context;
  const sources = SOURCES.filter(([name]) => name !== "prior" || session.prior !== null);
  const state = { source: sources[0][0], count: 48, seed: 0, order: "drawn" };
  let answer = null;
  const working = busy();
  const sheet = h("ul", { className: "sheet", "aria-label": "Samples" });
  const facts = h("p", { className: "facts" });
  const update = (values) => {
    Object.assign(state, values);
    ask.ask();
    save();
  };
  const source = choices("Draw codes from", sources, state.source, (value) => update({ source: value }));
  const count = select([12, 24, 48, 96, 192].map((n) => [n, n]), 48, (value) => update({ count: Number(value) }));
  const sorting = select([["drawn", "as drawn"], ["score", "by hole score"], ["data", "by distance from data"]], "drawn", (value) => {
    state.order = value;
    render();
    save();
  });
  const seed = h("input", { type: "number", min: 0, value: 0, onchange: () => update({ seed: Math.max(0, Math.round(Number(seed.value)) || 0) }) });
  const again = h("button", { type: "button", className: "primary", onclick: () => update({ seed: (seed.value = state.seed + 1) }) }, "Draw again");

  const ask = new Latest(
    async (signal) => {
      answer = await working.during("Decoding …", api("samples", { source: state.source, count: state.count, seed: state.seed }, signal));
      render();
    },
    (error) => {
      answer = null;
      sheet.replaceChildren();
      facts.textContent = "";
      context.fail(error);
    },
    { abort: true },
  );

  function render() {
    if (!answer) return;
    let order = answer.observations.map((_, k) => k);
    if (state.order === "score" && answer.displacement) order = order.sort((a, b) => answer.displacement[b].distance - answer.displacement[a].distance);
    if (state.order === "data" && answer.displacement) order = order.sort((a, b) => distance(answer.displacement[b]) - distance(answer.displacement[a]));
    sheet.replaceChildren(
      ...order.map((k) => {
        const score = answer.displacement?.[k];
        const text = score ? `${number(score.percentile, 0)} % · ${number(distance(score), 1)} ×` : "";
        const verdict = score?.hole ? "hole" : score?.unlike ? "unlike data" : "";
        const picture = observation(look, { size: 96, label: "" });
        picture.show(answer.observations[k]);
        const open = () => context.go("latents", answer.samples.length ? { sample: answer.samples[k] } : { z: writeVector(answer.codes[k]) });
        const name = `Sample ${k + 1}${score ? `, moves further than ${number(score.percentile, 0)} % of posterior samples${score.hole ? ", in a hole" : ""}. ${fromData(score)}` : ""} Open in Latents`;
        return h("li", {}, h("button", { type: "button", className: `tile ${score?.hole ? "in-hole" : score?.unlike ? "unlike" : ""}`, "aria-label": name, title: name, onclick: open }, picture, h("span", { className: "caption" }, text, verdict ? h("b", {}, ` ${verdict}`) : "")));
      }),
    );
    const description = SOURCES.find(([name]) => name === answer.source)[2];
    facts.textContent = answer.displacement
      ? `${description}: ${number(100 * answer.holes, 0)} % of these ${answer.observations.length} are in holes and ${number(100 * answer.unlike, 0)} % are unlike data (of posterior samples, at most 1 to 2 %).`
      : `${description}. ${session.no_hole_scores ?? ""}`;
  }

  function save() {
    const parameters = { source: state.source, count: state.count, seed: state.seed };
    context.save({ ...parameters, order: state.order === "drawn" ? null : state.order }, ["samples", parameters]);
  }

  return {
    root: h(
      "div",
      { className: "samples" },
      h("div", { className: "toolbar" }, source, field("How many", count), field("Order", sorting), field("Seed", seed), again, working),
      facts,
      h("p", { className: "hint" }, "Below each sample: the percentage of posterior samples that move less when they are decoded and encoded again, and the distance of the decoded observation from the nearest data, in units of their spacing. Red: in a hole; orange: self-consistent, but unlike data. Click a sample to open it in Latents."),
      sheet,
    ),
    table: () => answer && sheetTable(answer),
    show(parameters) {
      state.source = sources.some(([name]) => name === parameters.source) ? parameters.source : sources[1]?.[0] ?? "data";
      state.count = [12, 24, 48, 96, 192].includes(Number(parameters.count)) ? Number(parameters.count) : 48;
      state.seed = readIndex(parameters.seed, 2 ** 31) ?? 0;
      state.order = ["score", "data"].includes(parameters.order) ? parameters.order : "drawn";
      source.choose(state.source);
      count.value = state.count;
      seed.value = state.seed;
      sorting.value = state.order;
      ask.ask();
      save();
    },
  };
}

/** The codes of a sheet with their scores, as far as there are some. */
function sheetTable({ codes, displacement, samples }) {
  const scores = displacement ? ["ratio", "percentile", "hole", "from_codes", "from_data"] : [];
  return {
    columns: [...(samples.length ? ["sample"] : []), ...codes[0].map((_, j) => `code_${j}`), ...scores.map((name) => (name === "ratio" ? "hole_score" : name === "hole" ? "in_hole" : name))],
    rows: codes.map((code, k) => [...(samples.length ? [samples[k]] : []), ...code, ...scores.map((name) => displacement[k][name])]),
  };
}
