// Map: the response over a plane of two latents, the codes in it, and paths between points.

import { factorColours } from "./colour.js";
import { Latest, api, busy, choices, field, h, number, precise, readIndex, readPair, readVector, select, writePair, writeVector } from "./core.js";
import { colourBar, legend, lines, observation, paint, strip } from "./draw.js";
import { displacement } from "./latents.js";
import { colourRange, drawPlane } from "./plane.js";

const LAYERS = {
  divergence: ["Where responses meet or part", "blue where responses converge (self-consistent codes), red where they diverge (a boundary). Hatched: unlike data"],
  curvature: ["How sharply they do", "curvature: how sharply responses converge or diverge. Hatched: unlike data"],
  magnitude: ["How far codes move", "displacement: how far decoding and encoding moves a code within the plane. Hatched: unlike data"],
  holes: ["Holes", "hole score: displacement in all latents, relative to posterior samples (1 = typical)"],
  from_codes: ["Distance from codes", "of each point from the nearest codes of data, in units of their spacing"],
  from_data: ["Distance from data", "of each decoded point from the nearest data, in units of their spacing"],
  none: ["Nothing", ""],
};

const PICTURES = 9; // along each side of the map

export function make(context) {
  const { session, look } = context;
  const latents = session.latents.map((row) => row.latent);
  const state = { first: null, second: null, layer: "divergence", factor: null, sample: null, z: null, grid: 48, pictures: false, within: "plane", a: null, b: null, p: null };
  let plane = null;
  let path = null;
  let response = null; // of the point that is decoded
  let drag = null;

  if (latents.length < 2) {
    const root = h("p", { className: "hint" }, "A map needs two latents, but this model has one. See its traversal in Latents.");
    return { root, show() {} };
  }

  const canvas = h("canvas", { className: "plane", tabIndex: 0, role: "img", "aria-label": "Map. The arrow keys move the point, Enter sets the start and then the end of a path, Escape removes the path." });
  const legends = h("div", { className: "legends" });
  const mapStatus = busy();
  const pathStatus = busy();
  const paths = h("section", { className: "paths", "aria-live": "polite" });
  const picture = observation(look, { size: 208, label: "Decoded at the point", table: false });
  picture.classList.add("decoded");
  const about = h("div", { className: "meter" });

  // The plane itself.
  const planeParameters = () => ({ first: state.first, second: state.second, grid: state.grid, sample: state.sample, z: state.z });
  let finest = ""; // the parameters of the fine map that is shown
  const maps = new Latest(
    async (signal) => {
      const parameters = { ...planeParameters(), layer: state.layer, factor: state.factor };
      const fine = JSON.stringify({ ...parameters, factor: null });
      if (fine !== finest && parameters.grid > 24 && parameters.layer !== "none") {
        // A coarse map first, the fine one when it is ready.
        showMap(await mapStatus.during("Computing the map …", api("map", { ...parameters, grid: 16 }, signal)));
      }
      showMap(await mapStatus.during("Computing the fine map …", api("map", parameters, signal)));
      finest = fine;
    },
    (error) => {
      plane = scale = decodedPictures = null;
      finest = decodedAt = "";
      canvas.width = canvas.height; // clears it
      canvas.classList.add("failed");
      legends.replaceChildren();
      blankPoint();
      context.fail(error);
    },
    { abort: true },
  );

  function showMap(answer) {
    plane = answer;
    decodePictures.ask();
    canvas.classList.remove("failed");
    if (state.first === null || state.second === null) {
      [state.first, state.second] = plane.dims;
      for (const name of ["first", "second"]) controls[name].value = state[name];
      save();
    }
    state.p ??= [plane.base[state.first], plane.base[state.second]];
    if (!response) decode.ask();
    render();
    showLegends();
  }

  // Decoded pictures on the map.
  let decodedPictures = null; // rows of canvases, from below
  let decodedAt = ""; // the plane that they are of
  const decodePictures = new Latest(
    async (signal) => {
      if (!state.pictures || !plane) return render();
      const key = JSON.stringify([plane.dims, plane.extent, plane.base]);
      if (key === decodedAt) return render();
      decodedPictures = null;
      const [low0, high0, low1, high1] = plane.extent;
      const at = (k, low, high) => low + ((k + 0.5) / PICTURES) * (high - low);
      const codes = Array.from({ length: PICTURES * PICTURES }, (_, k) => {
        const z = [...plane.base];
        z[plane.dims[0]] = at(k % PICTURES, low0, high0);
        z[plane.dims[1]] = at(Math.floor(k / PICTURES), low1, high1);
        return z;
      });
      const { decoded } = await api("decode", { codes }, signal);
      const canvases = decoded.map((one) => {
        const picture = document.createElement("canvas");
        paint(picture, one);
        return picture;
      });
      decodedPictures = Array.from({ length: PICTURES }, (_, k) => canvases.slice(k * PICTURES, (k + 1) * PICTURES));
      decodedAt = key;
      render();
    },
    (error) => {
      decodedPictures = null;
      decodedAt = "";
      render();
      context.fail(error);
    },
    { abort: true },
  );

  // The point that is decoded.
  const decode = new Latest(async () => {
    if (!plane || !state.p) return;
    const z = [...plane.base];
    z[state.first] = state.p[0];
    z[state.second] = state.p[1];
    const answer = await api("latents", { z });
    response = [answer.response[state.first], answer.response[state.second]];
    picture.show(answer.decoded);
    about.replaceChildren(...displacement(answer.displacement, session.no_hole_scores));
    open.hidden = false;
    render();
  }, (error) => {
    blankPoint();
    context.fail(error);
  });
  function blankPoint() {
    response = null;
    picture.blank();
    about.replaceChildren();
    open.hidden = true;
    render();
  }

  // The two paths.
  const findPath = new Latest(
    async (signal) => {
      path = null;
      if (!state.a || !state.b) {
        paths.replaceChildren();
        context.clear("path");
        render();
        return;
      }
      render();
      path = await pathStatus.during("Computing the path …", api("path", { ...planeParameters(), start: state.a, end: state.b, within: state.within }, signal));
      render();
      showPath();
    },
    (error) => {
      paths.replaceChildren();
      context.fail(error);
    },
    { abort: true },
  );

  function showPath() {
    const about = (which) => {
      const far = path[`${which}from_codes`];
      return `∫‖R(z) − z‖² ${precise(path[`${which}cost`])}, decoded length ${precise(path[`${which}decoded_length`])}, largest jump ${precise(path[`${which}largest_jump`])}${far === null ? "" : `, up to ${number(far, 1)} × the spacing of codes away from them`}`;
    };
    const along = (values) => values.map((_, k) => k / (values.length - 1));
    paths.replaceChildren(
      h("h3", {}, "From A to B"),
      path.warning ? h("p", { className: "warning" }, `Warning: ${path.warning}`) : "",
      h("div", { className: "film" }, h("p", {}, h("span", { className: "key-grey" }, "straight line"), `: ${about("straight_")}`), strip(look, path.straight_frames, { size: 72, label: "straight line, frame" })),
      h("div", { className: "film" }, h("p", {}, h("span", { className: "key-one" }, "manifold path"), `: ${about("")}`), strip(look, path.frames, { size: 72, label: "manifold path, frame" })),
      h(
        "div",
        { className: "beside" },
        lines(
          [
            { values: path.straight_profile, x: along(path.straight_profile), className: "grey" },
            { values: path.profile, x: along(path.profile), className: "one" },
          ],
          { width: 340, height: 170, low: 0, x: "fraction of the path", y: "‖R(z) − z‖²", points: false },
        ),
        legend([["grey", "straight line"], ["one", path.within === "plane" ? "manifold path in the plane" : "manifold path in all latents"]]),
      ),
    );
  }

  // Drawing.
  let scale = null;
  function render() {
    if (!plane || !canvas.isConnected) return;
    const colours = plane.factor ? factorColours(session.factors[state.factor], plane.factor) : null;
    scale = drawPlane(canvas, { plane, path, pictures: state.pictures ? decodedPictures : null, colours, names: [`z${state.first}`, `z${state.second}`], point: state.p, response, ends: [[state.a, "A"], [state.b, "B"]] });
  }

  function showLegends() {
    legends.replaceChildren();
    if (plane.values) {
      const { most, kind } = colourRange(plane);
      legends.append(colourBar(kind, kind === "signed" ? -most : 0, most, LAYERS[plane.layer].join(": ")));
    }
    if (plane.factor) {
      const factor = factorColours(session.factors[state.factor], plane.factor);
      legends.append(
        h("div", { className: "legend chips" }, h("span", { className: "hint" }, session.factors[state.factor].name), factor.legend.map(([text, colour], k) => h("span", { className: "chip" }, h("i", { style: { background: colour } }), factor.continuous && k ? `… ${text}` : text))),
      );
    }
  }

  // Pointer: a click sets A, then B; a drag moves the handle under it, or the point.
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (!scale || event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    const [x, y] = at(event);
    const near = ["a", "b", "p"].find((name) => state[name] && Math.hypot(scale.x(state[name][0]) - x, scale.y(state[name][1]) - y) < 14);
    drag = { name: near ?? "p", near, x, y, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const [x, y] = at(event);
    if (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < 5) return;
    drag.moved = true;
    state[drag.name] = scale.invert(x, y);
    // The point follows every drag, so that it is decoded.
    state.p = scale.invert(x, y);
    if (drag.name !== "p") path = null;
    decode.ask();
    render();
  });
  const release = (event) => {
    if (!drag) return;
    const { name, near, moved } = drag;
    drag = null;
    if (!moved && !near) setEnd(scale.invert(...at(event)));
    else if (moved && name !== "p") findPath.ask();
    save();
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("keydown", (event) => {
    if (!scale) return;
    const factor = event.shiftKey ? 5 : 1;
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (step) {
      const [x, y] = state.p ?? [plane.base[state.first], plane.base[state.second]];
      const [low0, high0, low1, high1] = plane.extent;
      state.p = [Math.min(high0, Math.max(low0, x + factor * step[0] * scale.step[0])), Math.min(high1, Math.max(low1, y + factor * step[1] * scale.step[1]))];
      decode.ask();
      render();
    } else if (event.key === "Enter" || event.key === " ") setEnd(state.p ?? [plane.base[state.first], plane.base[state.second]]);
    else if (event.key === "Escape") removePath();
    else return;
    event.preventDefault();
    save();
  });

  function setEnd(point) {
    if (!state.a || state.b) {
      state.a = point;
      state.b = null;
    } else state.b = point;
    state.p = point;
    decode.ask();
    findPath.ask();
  }
  function removePath() {
    state.a = state.b = null;
    findPath.ask();
    save();
  }

  // Controls.
  const names = session.latents.map((row) => [row.latent, `z${row.latent}${row.type ? ` · ${row.type}` : ""}`]);
  const controls = {
    first: select(names, null, (value) => choose("first", Number(value))),
    second: select(names, null, (value) => choose("second", Number(value))),
    layer: select(Object.entries(LAYERS).map(([name, [text]]) => [name, text]), "divergence", (value) => change({ layer: value })),
    factor: select([["", "nothing"], ...session.factors.map((factor, k) => [k, factor.name])], "", (value) => change({ factor: value === "" ? null : Number(value) })),
    grid: select([[24, "coarse"], [48, "medium"], [96, "fine"]], 48, (value) => change({ grid: Number(value) }, true)),
    sample: h("input", { type: "number", min: 0, max: session.samples - 1, onchange: (event) => change({ sample: Math.min(session.samples - 1, Math.max(0, Number(event.target.value) || 0)), z: null }, true) }),
  };
  const pictures = h("input", { type: "checkbox", onchange: () => change({ pictures: pictures.checked }) });
  const within = choices("Path in", [["plane", "this plane"], ["all", "all latents"]], "plane", (value) => {
    state.within = value;
    findPath.ask();
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
    pictures.checked = state.pictures;
    if (again) response = path = null;
    maps.ask();
    if (again) findPath.ask();
    save();
  }
  const useCode = h("button", { type: "button", onclick: () => {
    const z = readVector(context.stateOf("latents").z, latents.length);
    const sample = readIndex(context.stateOf("latents").sample, session.samples);
    change(z ? { z, sample: null } : { z: null, sample }, true);
  } }, "Use the code from Latents");
  const open = h("button", { type: "button", hidden: true, onclick: () => {
    const z = [...plane.base];
    z[state.first] = state.p[0];
    z[state.second] = state.p[1];
    context.go("latents", { z: writeVector(z) });
  } }, "Open in Latents");

  function save() {
    const planeState = { first: state.first, second: state.second, grid: state.grid === 48 ? null : state.grid, sample: state.sample, z: state.z ? writeVector(state.z) : null };
    const parameters = { ...planeState, layer: state.layer, factor: state.factor };
    context.save({ ...parameters, a: writePair(state.a), b: writePair(state.b), p: writePair(state.p), within: state.within === "plane" ? null : state.within, pictures: state.pictures ? 1 : null }, ["map", { ...parameters, z: state.z && state.z.length <= 2000 ? state.z.join(",") : null }]);
  }

  new ResizeObserver(() => render()).observe(canvas);
  const root = h(
    "div",
    { className: "map" },
    h(
      "div",
      { className: "toolbar" },
      field("x axis", controls.first),
      field("y axis", controls.second),
      field("Background", controls.layer),
      session.factors.length ? field("Colour codes by", controls.factor) : null,
      field("Detail", controls.grid),
      field("Other latents from this sample", controls.sample),
      useCode,
      look.kind === "picture" ? h("label", { className: "check" }, pictures, "Pictures on the map") : null,
    ),
    h(
      "div",
      { className: "split" },
      h("div", { className: "plane-holder" }, canvas, mapStatus, legends),
      h(
        "div",
        { className: "side" },
        h("p", { className: "hint instructions" }, "Drag to decode a point; the arrow leads to its response. Click two points to compute a path. Keyboard: arrow keys, Enter, Escape."),
        h("figure", {}, picture, h("figcaption", {}, "decoded at the point")),
        about,
        open,
        within,
        h("button", { type: "button", onclick: removePath }, "Remove path"),
        pathStatus,
      ),
    ),
    paths,
  );

  return {
    root,
    shortcuts: [["← → ↑ ↓", "move the point (with Shift: faster)"], ["Enter", "set the start, then the end of a path"], ["Esc", "remove the path"]],
    table: () => plane && planeTable(plane),
    show(parameters) {
      const count = latents.length;
      state.first = readIndex(parameters.first, count);
      state.second = readIndex(parameters.second, count);
      if (state.first === state.second) state.second = null; // the server chooses
      state.layer = Object.hasOwn(LAYERS, parameters.layer ?? "") ? parameters.layer : "divergence";
      state.factor = readIndex(parameters.factor, session.factors.length);
      state.grid = [24, 48, 96].includes(Number(parameters.grid)) ? Number(parameters.grid) : 48;
      state.sample = readIndex(parameters.sample, session.samples);
      state.z = readVector(parameters.z, count);
      state.pictures = parameters.pictures === "1" && look.kind === "picture";
      state.within = parameters.within === "all" ? "all" : "plane";
      for (const name of ["a", "b", "p"]) state[name] = readPair(parameters[name]);
      plane = null;
      refresh();
    },
    recolour() {
      render();
      if (plane) showLegends();
    },
  };
}

/** The values on the grid of a plane; without any, the codes. */
function planeTable({ dims, extent: [low0, high0, low1, high1], layer, values, codes, samples }) {
  const axes = dims.map((latent) => `z${latent}`);
  if (!values) return { columns: ["sample", ...axes], rows: codes.map((code, k) => [samples[k], ...code]) };
  const at = (k, low, high) => low + (k / (values.length - 1)) * (high - low);
  return { columns: [...axes, layer], rows: values.flatMap((line, i) => line.map((value, j) => [at(i, low0, high0), at(j, low1, high1), value])) };
}
