// Compare: two models on the same observations.

import { Latest, api, busy, choices, field, h, number, precise, readIndex } from "./core.js";
import { heat, observation } from "./draw.js";

export function make(context) {
  const { session, look } = context;
  if (!session.compare) {
    return {
      root: h("div", { className: "empty" }, h("h2", {}, "Nothing to compare yet"), h("p", {}, "Start the explorer with a second model on the same data:"), h("pre", {}, `zscope explore ${session.name} --compare OTHER`)),
      show() {},
      recolour() {},
    };
  }
  const state = { sample: null, of: "layers" };
  let found = null;
  const working = busy();
  const through = h("div", { className: "through" });
  const holder = h("div", {});
  const readout = h("p", { className: "readout", role: "status" }, "Point at a cell for its value.");
  const index = h("input", { type: "number", min: 0, max: session.samples - 1, onchange: () => choose(Number(index.value)) });
  const step = (by, text, label) => h("button", { type: "button", "aria-label": label, onclick: () => choose((state.sample ?? session.start) + by) }, text);
  const of = choices("Similarity of", [["layers", "Layers (CKA)"], ["latents", "Latents (|correlation|)"]], "layers", (value) => {
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

  const same = new Latest(async () => {
    try {
      const answer = await api("compare", { sample: state.sample });
      const figures = [["data sample", answer.sample.observation, null], ...answer.models.map((model) => [model.name, model.decoded, model])];
      through.replaceChildren(
        ...figures.map(([name, shown, model]) => {
          const picture = observation(look, { size: 176, label: name });
          picture.show(shown);
          return h("figure", {}, picture, h("figcaption", {}, h("b", {}, name), model ? ` squared error ${precise(model.error)}` : ` no. ${answer.sample.index}`), model ? bars(model.z) : null);
        }),
      );
    } catch (error) {
      context.fail(error);
    }
  });

  const similar = new Latest(
    async (signal) => {
      try {
        found = await working.during("Comparing …", api("similarity", { of: state.of }, signal));
        render();
      } catch (error) {
        context.fail(error);
      }
    },
    { abort: true },
  );

  function render() {
    holder.replaceChildren(
      heat({
        rows: found.rows,
        columns: found.columns,
        values: found.values,
        across: `${found.of} of ${session.compare}`,
        down: `${found.of} of ${session.name}`,
        scale: "share",
        label: `Similarity of ${found.of}`,
        onlook: (j, k) => (readout.textContent = `${found.rows[j]} and ${found.columns[k]}: ${number(found.values[j][k], 3)}`),
      }),
      h("p", { className: "facts" }, `${found.samples} samples`),
    );
  }

  const save = () => context.save({ sample: state.sample, of: state.of }, ["compare", { sample: state.sample }]);

  return {
    root: h(
      "div",
      { className: "compare split" },
      h("section", { className: "half" }, h("h2", {}, "The same sample through both"),
      h("div", { className: "toolbar" }, h("div", { className: "group" }, field("Data sample", index), step(-1, "‹", "Previous sample"), step(1, "›", "Next sample"), h("button", { type: "button", onclick: () => choose(Math.floor(Math.random() * session.samples)) }, "Random"))),
      through),
      h("section", { className: "half" }, h("h2", {}, "Where they agree"), h("div", { className: "toolbar" }, of, working), readout, holder),
    ),
    show(parameters) {
      state.sample = readIndex(parameters.sample, session.samples);
      state.of = parameters.of === "latents" ? "latents" : "layers";
      index.value = state.sample ?? session.start;
      of.choose(state.of);
      same.ask();
      similar.ask();
      save();
    },
    recolour: () => found && render(),
  };
}

/** The code as small bars around 0. */
function bars(z) {
  const shown = z.slice(0, 64);
  const most = Math.max(3, ...shown.map(Math.abs));
  return h(
    "div",
    { className: "code-bars", role: "img", "aria-label": `Code: ${shown.map((value, j) => `z${j} ${number(value)}`).join(", ")}` },
    shown.map((value, j) => {
      const size = (50 * Math.abs(value)) / most;
      return h("span", { title: `z${j} = ${number(value)}` }, h("i", { style: { height: `${size}%`, top: value >= 0 ? `${50 - size}%` : "50%" } }));
    }),
  );
}
