// The table of the codes that were selected on the map, and files of codes.

import { Latest, api, busy, h, number } from "./core.js";
import { save } from "./files.js";

export const FORMATS = { csv: "CSV", parquet: "Parquet" };
const NAMES = { index: "row", hole_score: "hole score", in_hole: "in a hole" };

/** {root, ask(samples), download(format, samples)}; `show` is called with the sample of a row. */
export function selectionTable(context, { show, clear }) {
  const { session } = context;
  const working = busy();
  const content = h("div", {});
  const root = h("section", { className: "chosen", "aria-live": "polite" }, content, working);
  const hint = h("p", { className: "hint instructions" }, "Select codes to see them in a table and to save them: choose “select” and draw around them (or drag with Shift), or click a colour of the legend.");
  content.append(hint);

  const table = new Latest(
    async (samples, signal) => {
      if (!samples.length) return content.replaceChildren(hint);
      showTable(samples, await working.during("Measuring the selected codes …", api("selection", { samples }, signal)));
    },
    (error) => {
      content.replaceChildren();
      context.fail(error);
    },
    { abort: true },
  );

  function showTable(all, { count, samples, columns, rows }) {
    content.replaceChildren(
      h("h2", {}, `${count.toLocaleString("en")} of ${session.samples.toLocaleString("en")} codes selected`),
      h("p", { className: "group" },
        session.files.map((format) => h("button", { type: "button", onclick: () => download(format, all) }, `Save as ${FORMATS[format]}`)),
        h("button", { type: "button", onclick: clear }, "Clear the selection")),
      h("div", { className: "scroll" },
        h("table", { className: "numbers" },
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "sample"), columns.map((name) => h("th", { scope: "col" }, NAMES[name] ?? name)))),
          h("tbody", {}, rows.map((row, k) =>
            h("tr", {}, h("th", { scope: "row" }, h("button", { type: "button", className: "link", title: "Show on the map", onclick: () => show(samples[k]) }, String(samples[k]))), row.map((value) => h("td", {}, textOf(value)))))))),
      rows.length < count ? h("p", { className: "hint" }, `The first ${rows.length}; a file has all of them.`) : "",
    );
  }

  async function download(format, samples = null) {
    try {
      const reply = await working.during("Writing the table …", api("export", { samples, format }));
      save(reply.name, reply.type, Uint8Array.from(atob(reply.base64), (letter) => letter.charCodeAt(0)));
      context.say(`${reply.rows} rows saved as ${reply.name}`);
    } catch (error) {
      context.fail(error);
    }
  }

  return { root, ask: (samples) => table.ask(samples), download };
}

function textOf(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" && !Number.isInteger(value) ? number(value) : String(value);
}
