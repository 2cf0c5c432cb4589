// Map: a plane of two latents, with codes, and paths between its points.

import { factorColours } from "./colour.js";
import { Latest, api, busy, choices, field, h, precise, readIndex, readPair, readVector, select, writePair, writeVector } from "./core.js";
import { colourBar, key, lines, observation, strip } from "./draw.js";
import { moved } from "./latents.js";
import { drawPlane, reach } from "./plane.js";

const LAYERS = {
  divergence: ["Divergence", "blue where responses gather (the manifold), red where they part (a boundary)"],
  curvature: ["Curvature", "how sharply responses turn towards the manifold"],
  magnitude: ["Response size", "how far one pass moves a code within the plane"],
  holes: ["Hole score", "how far one pass moves a code in all latents, against posterior samples (1)"],
  none: ["Nothing", ""],
};

export function make(context) {
  const { session, look } = context;
  const latents = session.latents.map((row) => row.latent);
  const state = { first: null, second: null, layer: "divergence", factor: null, sample: null, z: null, grid: 48, within: "plane", a: null, b: null, p: null };
  let plane = null;
  let path = null;
  let probe = null;
  let grabbed = null;

  if (latents.length < 2) {
    const root = h("p", { className: "hint" }, "A map needs two latents, and this model has one. The view Latents shows all of it.");
    return { root, show() {} };
  }

  const canvas = h("canvas", { className: "plane", tabIndex: 0, role: "img", "aria-label": "Map. Arrow keys move the point, Enter sets the start and then the end of a path, Escape removes it." });
  const legend = h("div", { className: "legends" });
  const working = busy();
  const walking = busy();
  const strips = h("section", { className: "paths", "aria-live": "polite" });
  const picture = observation(look, { size: 208, label: "Decoded at the point", table: false });
  picture.classList.add("decoded");
  const about = h("div", { className: "meter" });

  // The plane itself.
  const question = () => ({ first: state.first, second: state.second, grid: state.grid, sample: state.sample, z: state.z });
  let finest = ""; // which fine map is shown
  const maps = new Latest(
    async (signal) => {
      const wanted = { ...question(), layer: state.layer, factor: state.factor };
      const which = JSON.stringify({ ...wanted, factor: null });
      try {
        if (which !== finest && wanted.grid > 24 && wanted.layer !== "none") {
          // A coarse map at once, the fine one when it is ready.
          arrived(await working.during("Working out the map …", api("map", { ...wanted, grid: 16 }, signal)));
        }
        arrived(await working.during("Working out the fine map …", api("map", wanted, signal)));
        finest = which;
      } catch (error) {
        context.fail(error);
      }
    },
    { abort: true },
  );

  function arrived(found) {
    plane = found;
    state.p ??= [plane.base[state.first], plane.base[state.second]];
    if (!probe) decode.ask();
    render();
    legends();
  }

  // The point that is decoded.
  const decode = new Latest(async () => {
    if (!plane || !state.p) return;
    const z = [...plane.base];
    z[state.first] = state.p[0];
    z[state.second] = state.p[1];
    try {
      const answer = await api("latents", { z });
      probe = [answer.response[state.first], answer.response[state.second]];
      picture.show(answer.decoded);
      about.replaceChildren(...moved(answer.moved, session.holes));
      open.hidden = false;
      render();
    } catch (error) {
      context.fail(error);
    }
  });

  // The two paths.
  const walk = new Latest(
    async (signal) => {
      path = null;
      if (!state.a || !state.b) {
        strips.replaceChildren();
        context.clear("path");
        render();
        return;
      }
      render();
      try {
        path = await walking.during("Looking for the path …", api("path", { ...question(), start: state.a, end: state.b, within: state.within }, signal));
        render();
        film();
      } catch (error) {
        strips.replaceChildren();
        context.fail(error);
      }
    },
    { abort: true },
  );

  function film() {
    const less = path.straight_cost > 0 ? Math.round(100 * (1 - path.cost / path.straight_cost)) : 0;
    const along = (values) => values.map((_, k) => k / (values.length - 1));
    strips.replaceChildren(
      h("h3", {}, "From A to B"),
      h("div", { className: "film" }, h("p", {}, h("span", { className: "key-grey" }, "straight line"), ` cost ${precise(path.straight_cost)}`), strip(look, path.straight_frames, { size: 72, label: "straight line, frame" })),
      h("div", { className: "film" }, h("p", {}, h("span", { className: "key-one" }, "manifold path"), ` cost ${precise(path.cost)}`, less > 0 ? `, ${less} % less` : ""), strip(look, path.frames, { size: 72, label: "manifold path, frame" })),
      h(
        "div",
        { className: "beside" },
        lines(
          [
            { values: path.straight_profile, x: along(path.straight_profile), className: "grey" },
            { values: path.profile, x: along(path.profile), className: "one" },
          ],
          { width: 340, height: 170, low: 0, x: "share of the way", y: "‖R(z) − z‖²", points: false },
        ),
        key([["grey", "straight line"], ["one", path.within === "plane" ? "manifold path in the plane" : "manifold path in all latents"]]),
      ),
    );
  }

  // Drawing.
  let scale = null;
  function render() {
    if (!plane || !canvas.isConnected) return;
    const colours = plane.factor ? factorColours(session.factors[state.factor], plane.factor) : null;
    scale = drawPlane(canvas, { plane, path, colours, names: [`z${state.first}`, `z${state.second}`], point: state.p, moved: probe, ends: [[state.a, "A"], [state.b, "B"]] });
  }

  function legends() {
    legend.replaceChildren();
    if (plane.values) {
      const { most, kind } = reach(plane);
      legend.append(colourBar(kind, kind === "signed" ? -most : 0, most, LAYERS[plane.layer].join(": ")));
    }
    if (plane.factor) {
      const factor = factorColours(session.factors[state.factor], plane.factor);
      legend.append(
        h("div", { className: "legend chips" }, h("span", { className: "hint" }, session.factors[state.factor].name), factor.legend.map(([text, colour], k) => h("span", { className: "chip" }, h("i", { style: { background: colour } }), factor.continuous && k ? `… ${text}` : text))),
      );
    }
  }

  // Hands: a click sets A, then B; a drag moves whatever is under it, or the point.
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (!scale || event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    const [x, y] = at(event);
    const near = ["a", "b", "p"].find((name) => state[name] && Math.hypot(scale.x(state[name][0]) - x, scale.y(state[name][1]) - y) < 14);
    grabbed = { name: near ?? "p", near, x, y, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!grabbed) return;
    const [x, y] = at(event);
    if (!grabbed.moved && Math.hypot(x - grabbed.x, y - grabbed.y) < 5) return;
    grabbed.moved = true;
    state[grabbed.name] = scale.back(x, y);
    // Whatever is dragged is decoded.
    state.p = scale.back(x, y);
    if (grabbed.name !== "p") path = null;
    decode.ask();
    render();
  });
  const drop = (event) => {
    if (!grabbed) return;
    const { name, near, moved: dragged } = grabbed;
    grabbed = null;
    if (!dragged && !near) put(scale.back(...at(event)));
    else if (dragged && name !== "p") walk.ask();
    save();
  };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", () => (grabbed = null));
  canvas.addEventListener("keydown", (event) => {
    if (!scale) return;
    const big = event.shiftKey ? 5 : 1;
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (way) {
      const [x, y] = state.p ?? [plane.base[state.first], plane.base[state.second]];
      const [low0, high0, low1, high1] = plane.extent;
      state.p = [Math.min(high0, Math.max(low0, x + big * way[0] * scale.step[0])), Math.min(high1, Math.max(low1, y + big * way[1] * scale.step[1]))];
      decode.ask();
      render();
    } else if (event.key === "Enter" || event.key === " ") put(state.p ?? [plane.base[state.first], plane.base[state.second]]);
    else if (event.key === "Escape") forget();
    else return;
    event.preventDefault();
    save();
  });

  function put(point) {
    if (!state.a || state.b) {
      state.a = point;
      state.b = null;
    } else state.b = point;
    state.p = point;
    decode.ask();
    walk.ask();
  }
  function forget() {
    state.a = state.b = null;
    walk.ask();
    save();
  }

  // Controls.
  const names = session.latents.map((row) => [row.latent, `z${row.latent}${row.type ? ` · ${row.type}` : ""}`]);
  const controls = {
    first: select(names, null, (value) => choose("first", Number(value))),
    second: select(names, null, (value) => choose("second", Number(value))),
    layer: select(Object.entries(LAYERS).map(([name, [text]]) => [name, text]), "divergence", (value) => change({ layer: value })),
    factor: select([["", "none"], ...session.factors.map((factor, k) => [k, factor.name])], "", (value) => change({ factor: value === "" ? null : Number(value) })),
    grid: select([[24, "coarse"], [48, "medium"], [96, "fine"]], 48, (value) => change({ grid: Number(value) }, true)),
    sample: h("input", { type: "number", min: 0, max: session.samples - 1, onchange: (event) => change({ sample: Math.min(session.samples - 1, Math.max(0, Number(event.target.value) || 0)), z: null }, true) }),
  };
  const within = choices("Path within", [["plane", "this plane"], ["all", "all latents"]], "plane", (value) => {
    state.within = value;
    walk.ask();
    save();
  });

  function choose(name, latent) {
    const other = name === "first" ? "second" : "first";
    const swapped = state[other] === latent ? { [other]: state[name] } : {};
    Object.assign(state, { [name]: latent, ...swapped, a: null, b: null, p: null });
    refresh();
  }
  function change(values, again = false) {
    Object.assign(state, values);
    refresh(again);
  }
  function refresh(again = true) {
    for (const name of ["first", "second", "layer", "grid"]) controls[name].value = state[name];
    controls.factor.value = state.factor ?? "";
    controls.sample.value = state.z ? "" : (state.sample ?? session.start);
    within.choose(state.within);
    if (again) probe = path = null;
    maps.ask();
    if (again) walk.ask();
    save();
  }
  const borrow = h("button", { type: "button", onclick: () => {
    const z = readVector(context.stateOf("latents").z, latents.length);
    const sample = readIndex(context.stateOf("latents").sample, session.samples);
    change(z ? { z, sample: null } : { z: null, sample }, true);
  } }, "Use the code of Latents");
  const open = h("button", { type: "button", hidden: true, onclick: () => {
    const z = [...plane.base];
    z[state.first] = state.p[0];
    z[state.second] = state.p[1];
    context.go("latents", { z: writeVector(z) });
  } }, "Open in Latents");

  function save() {
    const own = { first: state.first, second: state.second, grid: state.grid === 48 ? null : state.grid, sample: state.sample, z: state.z ? writeVector(state.z) : null };
    const wanted = { ...own, layer: state.layer, factor: state.factor };
    context.save({ ...wanted, a: writePair(state.a), b: writePair(state.b), p: writePair(state.p), within: state.within === "plane" ? null : state.within }, ["map", { ...wanted, z: state.z && state.z.length <= 2000 ? state.z.join(",") : null }]);
  }

  new ResizeObserver(() => render()).observe(canvas);
  const root = h(
    "div",
    { className: "map" },
    h(
      "div",
      { className: "toolbar" },
      field("Across", controls.first),
      field("Up", controls.second),
      field("Ground", controls.layer),
      session.factors.length ? field("Colour codes by", controls.factor) : null,
      field("Grid", controls.grid),
      field("Others as in sample", controls.sample),
      borrow,
    ),
    h(
      "div",
      { className: "split" },
      h("div", { className: "plane-holder" }, canvas, working, legend),
      h(
        "div",
        { className: "side" },
        h("p", { className: "hint" }, "Drag to decode a point; the arrow shows where it is moved. Click two points for a path. Keys: arrows, Enter, Escape."),
        h("figure", {}, picture, h("figcaption", {}, "decoded at the point")),
        about,
        open,
        within,
        h("button", { type: "button", onclick: forget }, "Remove path"),
        walking,
      ),
    ),
    strips,
  );

  return {
    root,
    show(parameters) {
      const count = latents.length;
      state.first = readIndex(parameters.first, count) ?? latents[0];
      state.second = readIndex(parameters.second, count) ?? latents.find((latent) => latent !== state.first);
      if (state.first === state.second) state.second = latents.find((latent) => latent !== state.first);
      state.layer = Object.hasOwn(LAYERS, parameters.layer ?? "") ? parameters.layer : "divergence";
      state.factor = readIndex(parameters.factor, session.factors.length);
      state.grid = [24, 48, 96].includes(Number(parameters.grid)) ? Number(parameters.grid) : 48;
      state.sample = readIndex(parameters.sample, session.samples);
      state.z = readVector(parameters.z, count);
      state.within = parameters.within === "all" ? "all" : "plane";
      for (const name of ["a", "b", "p"]) state[name] = readPair(parameters[name]);
      plane = null;
      refresh();
    },
    recolour() {
      render();
      if (plane) legends();
    },
  };
}
