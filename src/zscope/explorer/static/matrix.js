// Matrix: which latents are used, depend on each other, and encode which factor.

import { Latest, api, busy, choices, h, number, readIndex } from "./core.js";
import { heat } from "./draw.js";
import { traversal } from "./traversal.js";

const KINDS = {
  response: ["Response", "How much the response of a latent changes, in the units of that latent, when a latent is replaced by its value in another sample. Row: replaced latent. Column: observed latent.", "amount"],
  relative: ["Relative", "The same, relative to the spread of the observed latent: a perfect autoencoder has the identity matrix.", "share"],
  conditioned: ["By factor", "Conditioned response: the response of each latent when only one factor varies. Row: factor. Column: latent.", "amount"],
  importance: ["Importance", "How much a predictor of each factor relies on each latent (DCI importance). Row: factor. Column: latent.", "share"],
  invariance: ["Invariance", "1: replacing the row's latent does not change the column's latent. On the diagonal, 0: the encoder fully recovers the new value.", "signed"],
};

export function make(context) {
  const { session } = context;
  const state = { kind: "response", row: null, column: null };
  let matrix = null;
  const kinds = Object.entries(KINDS)
    .filter(([name]) => session.factors.length >= ({ conditioned: 2, importance: 1 }[name] ?? 0))
    .map(([name, [text, about]]) => [name, text, about]);
  const chooser = choices("Show", kinds, "response", (kind) => {
    Object.assign(state, { kind, row: null, column: null });
    ask.ask();
    save();
  });
  const working = busy();
  const about = h("p", { className: "hint" });
  const facts = h("p", { className: "facts" });
  const holder = h("div", {});
  const readout = h("p", { className: "readout", role: "status" }, "Hover over a cell, or tap it, to see its value and, once clicked, its traversal.");
  const trace = traversal(context, { onpick: (latent, value) => context.go("latents", stateWith(latent, value)) });
  let base = null;
  let table = null;

  const ask = new Latest(
    async (signal) => {
      about.textContent = KINDS[state.kind][1];
      matrix = await working.during("Computing the matrix …", api("matrix", { kind: state.kind }, signal));
      render();
      if (state.row !== null) pick(state.row, state.column);
      else {
        // Start with the most important latent.
        const latent = session.latents[0].latent;
        const column = Math.max(0, matrix.columns.indexOf(latent));
        const values = matrix.values.map((line) => line[column]);
        pick(matrix.row === "factor" ? values.indexOf(Math.max(...values)) : matrix.rows.indexOf(latent), column);
      }
    },
    (error) => {
      matrix = null;
      holder.replaceChildren();
      facts.textContent = "";
      readout.textContent = "";
      trace.blank();
      context.fail(error);
    },
    { abort: true },
  );

  /** The state of Latents with one latent of the base changed. */
  const stateWith = (latent, value) => {
    const z = [...base];
    z[latent] = value;
    return { z: z.map((v) => v.toFixed(4)).join(",") };
  };

  function render() {
    const factor = matrix.row === "factor";
    const holderTable = heat({
      rows: matrix.rows,
      columns: matrix.columns,
      values: matrix.values,
      across: factor ? "latent" : "observed latent",
      down: factor ? "factor" : "replaced latent",
      scale: KINDS[matrix.kind][2],
      marks: matrix.causal ?? [],
      plain: factor,
      label: `${KINDS[matrix.kind][0]} matrix`,
      onlook: (j, k) => (readout.textContent = `${factor ? "factor" : "replaced"} ${matrix.rows[j]} → latent ${matrix.columns[k]}: ${number(matrix.values[j][k], 3)}`),
      onpick: (j, k) => {
        Object.assign(state, { row: j, column: k });
        pick(j, k);
        save();
      },
    });
    holder.replaceChildren(holderTable);
    table = holderTable.querySelector("table");
    const notes = [];
    if (matrix.causal) notes.push(`causal latents (bold): ${matrix.causal.join(", ") || "none"}`);
    if (matrix.collapsed) notes.push(`collapsed: ${matrix.collapsed.join(", ") || "none"}`);
    for (const name of ["disentanglement", "completeness", "informativeness"]) if (matrix[name] !== undefined) notes.push(`${name} ${number(matrix[name])}`);
    if (matrix.means?.invariance !== undefined) notes.push(`mean invariance ${number(matrix.means.invariance)}`);
    if (matrix.samples) notes.push(`${matrix.samples} samples`);
    facts.textContent = notes.join(" · ");
  }

  async function pick(j, k) {
    if (!matrix || j >= matrix.rows.length || k >= matrix.columns.length) return;
    table.select(j, k);
    const latent = matrix.row === "factor" ? matrix.columns[k] : matrix.rows[j];
    const observed = matrix.row === "factor" ? null : matrix.columns[k];
    try {
      base ??= (await api("sample", {})).z;
      trace.show({ latent }, observed);
    } catch (error) {
      trace.blank();
      context.fail(error);
    }
  }

  const save = () => context.save({ kind: state.kind, row: state.row, column: state.column }, ["matrix", { kind: state.kind }]);

  return {
    root: h("div", { className: "matrix" }, h("div", { className: "toolbar" }, chooser), about, h("div", { className: "split" }, h("div", {}, working, holder, facts), h("div", { className: "side" }, readout, trace.root))),
    show(parameters) {
      state.kind = kinds.some(([name]) => name === parameters.kind) ? parameters.kind : "response";
      state.row = readIndex(parameters.row, 1e6);
      state.column = readIndex(parameters.column, 1e6);
      if (state.column === null) state.row = null;
      chooser.choose(state.kind);
      ask.ask();
      save();
    },
    recolour: () => matrix && render(),
    table: () => matrix && { columns: [matrix.row ?? "", ...matrix.columns], rows: matrix.rows.map((name, j) => [name, ...matrix.values[j]]) },
    shortcuts: [["← → ↑ ↓", "from cell to cell of the matrix"], ["Enter", "show the traversal of the cell"]],
  };
}
