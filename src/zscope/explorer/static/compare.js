// Compare: two models on the same observations.

import { Latest, api, busy, choices, field, h, number, precise, readIndex } from "./core.js";
import { heat, observation } from "./draw.js";

export function make(context) {
  const { session, look } = context;
  if (!session.compare) {
    return {
      root: h("div", { className: "empty" }, h("h2", {}, "Nothing to compare yet"), h("p", {}, "Start the explorer with a second model on the same data:"), h("pre", {}, `zscope explore ${session.name} --compare OTHER`)),
      show() {},
    };
  }
  const state = { sample: null, of: "layers" };
  let similarity = null;
  const working = busy();
  const figures = h("div", { className: "reconstructions" });
  const holder = h("div", {});
  const readout = h("p", { className: "readout", role: "status" }, "Hover over a cell, or tap it, to see its value.");
  const index = h("input", { type: "number", min: 0, max: session.samples - 1, onchange: () => choose(Number(index.value)) });
  const step = (by, text, label) => h("button", { type: "button", "aria-label": label, onclick: () => choose((state.sample ?? session.start) + by) }, text);
  const ways = [["layers", "Layers (CKA)"], ["latents", "Latents (correlation)"]].filter(([name]) => session.similarities.includes(name));
  const of = choices("Compare", ways, "layers", (value) => {
    state.of = value;
    similar.ask();
    save();
  });

  function choose(which) {
    state.sample = Math.min(session.samples - 1, Math.max(0, Math.round(which) || 0));
    index.value = state.sample;
    same.ask();
    save();
  }

  const same = new Latest(
    async () => {
      const answer = await api("compare", { sample: state.sample });
      const columns = [["data sample", answer.sample.observation, null], ...answer.models.map((model) => [model.name, model.decoded, model])];
      figures.replaceChildren(
        ...columns.map(([name, data, model]) => {
          const picture = observation(look, { size: 176, label: name });
          picture.show(data);
          return h("figure", {}, picture, h("figcaption", {}, h("b", {}, name), h("br"), model ? `squared error ${precise(model.error)}` : `number ${answer.sample.index}`), model?.z ? bars(model.z) : null);
        }),
      );
    },
    (error) => {
      figures.replaceChildren();
      context.fail(error);
    },
  );

  const similar = new Latest(
    async (signal) => {
      similarity = await working.during("Comparing …", api("similarity", { of: state.of }, signal));
      render();
    },
    (error) => {
      similarity = null;
      holder.replaceChildren();
      readout.textContent = "";
      context.fail(error);
    },
    { abort: true },
  );

  function render() {
    holder.replaceChildren(
      heat({
        rows: similarity.rows,
        columns: similarity.columns,
        values: similarity.values,
        across: `${similarity.of} of ${session.compare}`,
        down: `${similarity.of} of ${session.name}`,
        scale: "share",
        label: `Similarity of ${similarity.of}`,
        onlook: (j, k) => (readout.textContent = `${similarity.rows[j]} and ${similarity.columns[k]}: ${number(similarity.values[j][k], 3)}`),
      }),
      h("p", { className: "facts" }, `${similarity.samples} samples`),
    );
  }

  const save = () => context.save({ sample: state.sample, of: state.of }, ["compare", { sample: state.sample }]);

  return {
    root: h(
      "div",
      { className: "compare split" },
      h("section", { className: "half" }, h("h2", {}, "One sample, both models"),
      h("div", { className: "toolbar" }, h("div", { className: "group" }, field("Data sample", index), step(-1, "‹", "Previous sample"), step(1, "›", "Next sample"), h("button", { type: "button", onclick: () => choose(Math.floor(Math.random() * session.samples)) }, "Random"))),
      figures),
      h("section", { className: "half" }, h("h2", {}, "Similarity of the models"), h("div", { className: "toolbar" }, of, working), readout, holder),
    ),
    table: () => similarity && { columns: [`${session.name} \\ ${session.compare}`, ...similarity.columns], rows: similarity.rows.map((name, j) => [name, ...similarity.values[j]]) },
    show(parameters) {
      state.sample = readIndex(parameters.sample, session.samples);
      state.of = session.similarities.includes(parameters.of) ? parameters.of : "layers";
      index.value = state.sample ?? session.start;
      of.choose(state.of);
      same.ask();
      similar.ask();
      save();
    },
    recolour: () => similarity && render(),
  };
}

/** A code as bars around 0. */
function bars(z) {
  const values = z.slice(0, 64);
  const most = Math.max(3, ...values.map(Math.abs));
  return h(
    "div",
    { className: "code-bars", role: "img", "aria-label": `Code: ${values.map((value, j) => `z${j} ${number(value)}`).join(", ")}` },
    values.map((value, j) => {
      const size = (50 * Math.abs(value)) / most;
      return h("span", { title: `z${j} = ${number(value)}` }, h("i", { style: { height: `${size}%`, top: value >= 0 ? `${50 - size}%` : "50%" } }));
    }),
  );
}
