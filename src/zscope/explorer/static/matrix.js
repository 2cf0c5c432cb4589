// Matrix: which latents matter, depend on each other, and carry which factor.

import { Latest, api, busy, choices, h, number, readIndex } from "./core.js";
import { heat } from "./draw.js";
import { traversal } from "./traversal.js";

const KINDS = {
  response: ["Response", "How much does the response of a latent change when another is replaced by that of another sample? Row: replaced. Column: observed.", "amount"],
  relative: ["Relative", "The same in units of how much the latent varies: the identity for a perfect autoencoder.", "share"],
  conditioned: ["Conditioned", "The response of each latent where one factor alone varies. Row: factor. Column: latent.", "amount"],
  importance: ["Importance", "How much a predictor of each factor relies on each latent (DCI). Row: factor. Column: latent.", "share"],
  invariance: ["Invariance", "1: intervening on the row's latent leaves the column's alone. On the diagonal 0: the intervention is fully felt.", "signed"],
};

export function make(context) {
  const { session } = context;
  const state = { kind: "response", row: null, column: null };
  let found = null;
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
  const readout = h("p", { className: "readout", role: "status" }, "Point at a cell for its value; click it for the traversal.");
  const trace = traversal(context, { onpick: (latent, value) => context.go("latents", setting(latent, value)) });
  let base = null;
  let table = null;

  const ask = new Latest(
    async (signal) => {
      about.textContent = KINDS[state.kind][1];
      try {
        found = await working.during("Working out the matrix …", api("matrix", { kind: state.kind }, signal));
        render();
        if (state.row !== null) pick(state.row, state.column);
        else {
          // Something to look at: the most important latent, intervened on and observed.
          const latent = session.latents[0].latent;
          const column = Math.max(0, found.columns.indexOf(latent));
          const values = found.values.map((line) => line[column]);
          pick(found.row === "factor" ? values.indexOf(Math.max(...values)) : found.rows.indexOf(latent), column);
        }
      } catch (error) {
        holder.replaceChildren();
        facts.textContent = "";
        context.fail(error);
      }
    },
    { abort: true },
  );

  const setting = (latent, value) => {
    const z = [...base];
    z[latent] = value;
    return { z: z.map((v) => v.toFixed(4)).join(",") };
  };

  function render() {
    const factor = found.row === "factor";
    const holderTable = heat({
      rows: found.rows,
      columns: found.columns,
      values: found.values,
      across: factor ? "latent" : "observed latent",
      down: factor ? "factor" : "intervened latent",
      scale: KINDS[found.kind][2],
      marks: found.causal ?? [],
      plain: factor,
      label: `${KINDS[found.kind][0]} matrix`,
      onlook: (j, k) => (readout.textContent = `${factor ? "factor" : "intervened"} ${found.rows[j]} → latent ${found.columns[k]}: ${number(found.values[j][k], 3)}`),
      onpick: (j, k) => {
        Object.assign(state, { row: j, column: k });
        pick(j, k);
        save();
      },
    });
    holder.replaceChildren(holderTable);
    table = holderTable.querySelector("table");
    const notes = [];
    if (found.causal) notes.push(`causal latents (bold): ${found.causal.join(", ") || "none"}`);
    if (found.collapsed) notes.push(`collapsed: ${found.collapsed.join(", ") || "none"}`);
    for (const name of ["disentanglement", "completeness", "informativeness"]) if (found[name] !== undefined) notes.push(`${name} ${number(found[name])}`);
    if (found.means?.invariance !== undefined) notes.push(`mean invariance ${number(found.means.invariance)}`);
    if (found.samples) notes.push(`${found.samples} samples`);
    facts.textContent = notes.join(" · ");
  }

  async function pick(j, k) {
    if (!found || j >= found.rows.length || k >= found.columns.length) return;
    table.choose(j, k);
    const latent = found.row === "factor" ? found.columns[k] : found.rows[j];
    const observed = found.row === "factor" ? null : found.columns[k];
    try {
      base ??= (await api("sample", {})).z;
      trace.show({ latent }, observed);
    } catch (error) {
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
    recolour: () => found && render(),
  };
}
