// Graph: the causal latents, and which affects which.

import { Latest, api, busy, field, h, number } from "./core.js";
import { observation } from "./draw.js";
import { traversal } from "./traversal.js";

const SIDE = 640;
const NODE = 22;

export function make(context) {
  const { session, look } = context;
  const state = { threshold: null };
  let graph = null;
  let ends = new Map(); // by latent: decoded at the low and the high end of its range
  const working = busy();
  const holder = h("div", { className: "graph-holder" });
  const note = h("p", { className: "facts" });
  const list = h("div", { className: "scroll" });
  const trace = traversal(context);
  const value = h("output", {});
  const threshold = h("input", { type: "range", min: 0, max: 1, step: 0.001, oninput: () => {
    state.threshold = Number(threshold.value);
    ask.ask();
    save();
  } });
  const reset = h("button", { type: "button", onclick: () => {
    state.threshold = null;
    ask.ask();
    save();
  } }, "Default");

  const ask = new Latest(
    async (signal) => {
      const first = graph === null;
      graph = await working.during("Computing the responses …", api("graph", { threshold: state.threshold }, signal));
      Object.assign(threshold, { max: Math.max(graph.largest * 1.02, graph.default), step: 0.001 });
      threshold.value = graph.threshold;
      value.textContent = number(graph.threshold, 3);
      render();
      if (first && graph.nodes.length) {
        const strongest = graph.edges[0];
        trace.show({ latent: strongest?.from ?? graph.nodes[0].latent }, strongest?.to ?? null);
      }
      if (first && look.kind === "picture") await pictures();
    },
    (error) => {
      graph = null;
      ends.clear();
      holder.replaceChildren();
      note.textContent = "";
      list.replaceChildren();
      trace.blank();
      context.fail(error);
    },
  );

  async function pictures() {
    try {
      for (const { latent } of graph.nodes.slice(0, 16)) {
        const one = await api("traversal", { latent, steps: 2 });
        ends.set(latent, one.decoded);
      }
      render();
    } catch (error) {
      context.fail(error); // the graph itself is an answer
    }
  }

  /** The order around the circle: strongly connected latents side by side. */
  function order() {
    const names = graph.nodes.map((node) => node.latent);
    const weight = (a, b) => graph.edges.filter((edge) => (edge.from === a && edge.to === b) || (edge.from === b && edge.to === a)).reduce((sum, edge) => sum + edge.weight, 0);
    const ordered = names.slice(0, 1);
    const left = new Set(names.slice(1));
    while (left.size) {
      const last = ordered.at(-1);
      const next = [...left].sort((a, b) => weight(last, b) - weight(last, a) || a - b)[0];
      ordered.push(next);
      left.delete(next);
    }
    return ordered;
  }

  /** The edges to draw: three per latent, unless the user has chosen a threshold. */
  const visibleEdges = () => (state.threshold === null ? graph.edges.slice(0, 3 * graph.nodes.length) : graph.edges);

  function render() {
    const names = order();
    const withPictures = ends.size > 0;
    const radius = names.length === 1 ? 0 : SIDE / 2 - (withPictures ? 108 : 60);
    const place = new Map(names.map((latent, k) => {
      const angle = (2 * Math.PI * k) / names.length - Math.PI / 2;
      return [latent, { x: SIDE / 2 + radius * Math.cos(angle), y: SIDE / 2 + radius * Math.sin(angle), angle }];
    }));
    const largest = Math.max(1e-12, ...graph.edges.map((edge) => edge.weight));
    const isPair = (a, b) => graph.pairs.some(([j, k]) => (j === a && k === b) || (j === b && k === a));
    const svg = h("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, class: "graph", role: "group", "aria-label": "Causal graph" });
    for (const kind of ["plain", "pair"]) {
      svg.append(h("defs", {}, h("marker", { id: `head-${kind}`, class: `head ${kind}`, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 11, markerHeight: 11, markerUnits: "userSpaceOnUse", orient: "auto" }, h("path", { d: "M0 0L10 5L0 10z" }))));
    }
    const edges = visibleEdges().toReversed(); // the strongest on top
    for (const edge of edges) {
      const [from, to] = [place.get(edge.from), place.get(edge.to)];
      const [dx, dy] = [to.x - from.x, to.y - from.y];
      const bend = { x: (from.x + to.x) / 2 - 0.18 * dy, y: (from.y + to.y) / 2 + 0.18 * dx };
      const start = towards(from, bend, NODE);
      const end = towards(to, bend, NODE + 3);
      const kind = isPair(edge.from, edge.to) ? "pair" : "plain";
      const share = edge.weight / largest;
      const select = () => trace.show({ latent: edge.from }, edge.to);
      const text = `z${edge.from} affects z${edge.to}: ${number(edge.weight, 3)}`;
      const path = `M${start.x} ${start.y}Q${bend.x} ${bend.y} ${end.x} ${end.y}`;
      svg.append(
        h(
          "g",
          { class: `edge ${kind}`, tabindex: 0, role: "button", "aria-label": text, onclick: select, onkeydown: (event) => event.key === "Enter" && select() },
          h("title", {}, text),
          h("path", { class: "reach", d: path }),
          h("path", { class: "shaft", d: path, "stroke-width": (1 + 4 * share).toFixed(2), "stroke-opacity": (0.35 + 0.65 * share).toFixed(2), "marker-end": `url(#head-${kind})` }),
        ),
      );
    }
    for (const node of graph.nodes) {
      const { x, y, angle } = place.get(node.latent);
      const select = () => trace.show({ latent: node.latent }, null);
      const text = `z${node.latent}, response ${number(node.response)}`;
      svg.append(
        h(
          "g",
          { class: "node", tabindex: 0, role: "button", "aria-label": text, onclick: select, onkeydown: (event) => event.key === "Enter" && select() },
          h("title", {}, text),
          h("circle", { cx: x, cy: y, r: NODE }),
          h("text", { x, y: y + 5, "text-anchor": "middle" }, `z${node.latent}`),
        ),
      );
      (ends.get(node.latent) ?? []).forEach((picture, k) => {
        const away = NODE + 44;
        const side = k === 0 ? -24 : 24;
        const cx = x + away * Math.cos(angle) + (Math.abs(Math.cos(angle)) < 0.75 ? side : 0);
        const cy = y + away * Math.sin(angle) + (Math.abs(Math.cos(angle)) < 0.75 ? 0 : side);
        const canvas = observation(look, { size: 44 });
        canvas.show(picture);
        svg.append(h("image", { href: canvas.toDataURL(), x: cx - 21, y: cy - 21, width: 42, height: 42, class: "pixels" }));
      });
    }
    holder.replaceChildren(graph.nodes.length ? svg : h("p", { className: "hint" }, "No latent is causal: the encoder recovers no change of a latent. Has the model collapsed, or was it hardly trained?"));
    const visible = new Set(visibleEdges().map((edge) => `${edge.from}-${edge.to}`));
    const pairs = graph.pairs.filter(([j, k]) => visible.has(`${j}-${k}`) && visible.has(`${k}-${j}`));
    note.textContent =
      `${graph.nodes.length} of ${graph.latents} ${graph.latents === 1 ? "latent is" : "latents are"} causal. ` +
      (visibleEdges().length < graph.edges.length ? `Showing the strongest ${visibleEdges().length} of ${graph.edges.length} arrows; use the slider to show more or fewer.` : `${graph.edges.length} ${graph.edges.length === 1 ? "arrow" : "arrows"}.`) +
      (pairs.length ? ` Orange: similar in both directions, so the two latents may encode one variable (${pairs.slice(0, 8).map((pair) => pair.join("–")).join(", ")}${pairs.length > 8 ? ", …" : ""}).` : "");
    list.replaceChildren(
      h("table", { className: "numbers" }, h("thead", {}, h("tr", {}, ["from", "to", "response"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, graph.edges.slice(0, 40).map((edge) => h("tr", {}, h("td", {}, `z${edge.from}`), h("td", {}, `z${edge.to}`), h("td", {}, number(edge.weight, 3)))))),
    );
  }

  const save = () => context.save({ threshold: state.threshold }, ["graph", { threshold: state.threshold }]);

  return {
    root: h(
      "div",
      { className: "graph-view" },
      h("div", { className: "toolbar" }, field("Hide arrows weaker than", threshold), value, reset, working),
      h("p", { className: "hint" }, "An arrow means that replacing the first latent changes the second: clearly more than the smallest weight (1: as much as replacing the second itself), and more than the noise of its posterior. Click a latent or an arrow to see its traversal." + (look.kind === "picture" ? " The pictures show each latent at the low and the high end of its range." : "")),
      h("div", { className: "split" }, holder, h("div", { className: "side" }, note, trace.root, h("details", {}, h("summary", {}, "Arrows as a table"), list))),
    ),
    table: () => graph && { columns: ["from", "to", "weight"], rows: graph.edges.map(({ from, to, weight }) => [from, to, weight]) },
    shortcuts: [["Tab", "from latent to latent and arrow to arrow"], ["Enter", "show the traversal"]],
    show(parameters) {
      const value = Number(parameters.threshold);
      state.threshold = parameters.threshold !== undefined && Number.isFinite(value) && value >= 0 ? value : null;
      ask.ask();
      save();
    },
  };
}

function towards(from, to, distance) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  return { x: from.x + (distance * (to.x - from.x)) / length, y: from.y + (distance * (to.y - from.y)) / length };
}
