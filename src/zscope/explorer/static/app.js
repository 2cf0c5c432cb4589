// The page: header, tabs, and one view at a time.
//
// The views are the endpoints with a title in views/__init__.py. The view NAME is drawn by
// /static/NAME.js, which exports
//
//   make(context)     called once, when the view is first opened; returns {root, show, recolour}
//
//   root              the element that is placed in the panel of the tab
//   show(parameters)  called whenever the view is opened or its link changes. The parameters are
//                     texts of the address and may be missing or wrong: use defaults for these.
//   recolour()        optional; called when the page changes between light and dark colours
//   table()           optional; {columns, rows} of what it shows, for a file of CSV, or null
//   downloads         optional; further files, [text, function that saves the file]
//   shortcuts         optional; its keys, [key, what it does], for the help
//   press(event)      optional; called for keys that no control takes; true if it was one of its keys
//
// `context` holds the answer of /api/session as `session`, the format of observations as `look`,
// and what a view may do to the page: fail(error), clear(endpoint), say(text),
// save(parameters, [endpoint, parameters]), go(view, parameters), stateOf(view).
// A view that fails also removes what it shows, which is the answer to another question.
// A file that does not keep to this is reported by name, here and on the console.

import { SERVER, api, h, hashOf, queryOf, readHash, store, stored } from "./core.js";
import { dark } from "./colour.js";
import { csvOf, pngOf, save, svgOf } from "./files.js";
import { makeHelp } from "./help.js";

const main = document.getElementById("view");
const alertBox = document.getElementById("alert");
const modules = {}; // by name: what the file of a view exports, or the Error it failed with
const views = {}; // by name: what make(context) returned
const states = {}; // by name: the parameters of a view's link
let session = null;
let current = null;
let saving = null;

const failures = new Map(); // from an endpoint (or view) to its error message

function fail(error) {
  if (error.name === "AbortError") return;
  failures.set(error.about, error.message);
  showFailures();
}

/** Remove the message about an endpoint, or all messages. */
function clear(endpoint = null) {
  if (endpoint === null) failures.clear();
  else failures.delete(endpoint);
  showFailures();
}

function showFailures() {
  alertBox.hidden = failures.size === 0;
  if (alertBox.hidden) alertBox.replaceChildren();
  else
    alertBox.replaceChildren(
      h("span", {}, [...new Set(failures.values())].map((message) => h("p", {}, message))),
      h("button", { type: "button", "aria-label": "Dismiss the message", onclick: () => clear() }, "×"),
    );
}

document.addEventListener("answered", (event) => {
  if (failures.delete(SERVER) | failures.delete(event.detail)) showFailures();
});

/** What a view may do to the page. */
function contextOf(name) {
  return {
    session,
    look: session.observation,
    fail,
    clear,
    /** Announce a text to screen readers. */
    say: (text) => (document.getElementById("status").textContent = text),
    /** Keep the state of the view in the address; `json` is the endpoint of its JSON link. */
    save(parameters, json) {
      states[name] = parameters;
      if (current !== name) return;
      // Not at every move of a slider: browsers refuse hundreds of addresses per second.
      clearTimeout(saving);
      saving = setTimeout(() => {
        history.replaceState(null, "", hashOf(name, parameters));
        setJsonLink(json ?? [name, parameters]);
      }, 100);
    },
    go: (view, parameters) => open(view, parameters, true),
    stateOf: (view) => states[view] ?? {},
  };
}

function setJsonLink([endpoint, parameters]) {
  const query = queryOf(parameters);
  document.getElementById("json").href = `api/${endpoint}${query.length < 30000 && query ? `?${query}` : ""}`;
}

function broken(name, problem, cause = undefined) {
  const message = `explorer: the view ${name} (static/${name}.js) ${problem}. See "An explorer view" in CONTRIBUTING.md.`;
  const error = Object.assign(new Error(message, { cause }), { about: name });
  console.error(error);
  return error;
}

/** Load the file of a view, and check what it exports. */
async function load({ name }) {
  try {
    modules[name] = await import(`./${name}.js`);
    if (typeof modules[name].make !== "function") modules[name] = broken(name, "does not export make(context)");
  } catch (error) {
    modules[name] = broken(name, `could not be loaded: ${error.message}`, error);
  }
}

/** Make a view when it is first opened, and check it. */
function viewOf(name) {
  if (modules[name] instanceof Error) throw modules[name];
  if (views[name]) return views[name];
  const view = modules[name].make(contextOf(name));
  if (!(view?.root instanceof Element)) throw broken(name, "lacks the element root: make(context) must return {root, show}");
  if (typeof view.show !== "function") throw broken(name, "lacks the function show(parameters): make(context) must return {root, show}");
  return (views[name] = view);
}

function open(name, parameters, push) {
  clear();
  clearTimeout(saving);
  current = name;
  const state = parameters ?? states[name] ?? {};
  states[name] = state;
  if (push) history.pushState(null, "", hashOf(name, state));
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const selected = tab.dataset.view === name;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
    if (selected) tab.scrollIntoView({ inline: "nearest", block: "nearest" });
  }
  const { title } = session.views.find((view) => view.name === name);
  document.title = `${title} · ${session.name} · zscope`;
  setJsonLink([name, {}]);
  try {
    const view = viewOf(name);
    if (main.firstElementChild?.id !== `panel-${name}`) main.replaceChildren(h("section", { id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}` }, view.root));
    view.show(state);
  } catch (error) {
    main.replaceChildren();
    fail(error.about ? error : broken(name, `failed: ${error.message}`, error));
  }
}

function makeTabs() {
  const bar = document.getElementById("tabs");
  const names = session.views.map((view) => view.name);
  for (const { name, title } of session.views) {
    bar.append(
      h("button", { type: "button", role: "tab", id: `tab-${name}`, dataset: { view: name }, "aria-controls": `panel-${name}`, tabIndex: -1, onclick: () => open(name, undefined, true) }, title),
    );
  }
  bar.addEventListener("keydown", (event) => {
    const at = names.indexOf(current);
    const to = { ArrowRight: (at + 1) % names.length, ArrowLeft: (at + names.length - 1) % names.length, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    open(names[to], undefined, true);
    document.getElementById(`tab-${names[to]}`).focus();
  });
}

function makeThemeButton() {
  const button = document.getElementById("theme");
  const set = (name) => {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    button.textContent = dark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", dark() ? "Use light colours" : "Use dark colours");
    for (const view of Object.values(views)) view.recolour?.();
  };
  button.addEventListener("click", () => {
    const name = dark() ? "light" : "dark";
    store("zscope-theme", name);
    set(name);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => set(stored("zscope-theme")));
  set(stored("zscope-theme"));
}

function makeLinkButton() {
  const button = document.getElementById("link");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Copied";
    } catch {
      button.textContent = "See address bar";
    }
    setTimeout(() => (button.textContent = "Copy link"), 1500);
  });
}

/** The menu of files: of the picture that the view shows, and of its data. */
function makeExportMenu() {
  const menu = document.getElementById("export");
  const items = document.getElementById("export-items");
  const nameOf = (suffix) => `zscope-${session.name.replaceAll(/[^\w.-]+/g, "-")}-${current}.${suffix}`;
  const write = (suffix, type, content) => save(nameOf(suffix), type, content);
  const actions = (view) => [
    ["Picture as SVG", () => write("svg", "image/svg+xml", svgOf(view.root).svg)],
    ["Picture as PNG", async () => write("png", "image/png", await pngOf(svgOf(view.root)))],
    ...(view.table?.() ? [["Data as CSV", () => write("csv", "text/csv", csvOf(view.table()))]] : []),
    ...(view.downloads ?? []),
  ];
  menu.addEventListener("toggle", () => {
    const view = views[current];
    if (!menu.open || !view) return items.replaceChildren();
    items.replaceChildren(
      ...actions(view).map(([text, run]) =>
        h("button", { type: "button", onclick: async () => {
          menu.open = false;
          try {
            await run();
          } catch (error) {
            fail(Object.assign(error, { about: "export", message: `explorer: the file could not be made (${error.message}). Save the page with the browser instead.` }));
          }
        } }, text)),
    );
  });
  document.addEventListener("pointerdown", (event) => !menu.contains(event.target) && (menu.open = false));
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.getElementById("json").addEventListener("click", () => (menu.open = false));
}

/** Keys of the page, and those of the view that no control takes. */
function makeKeys(help) {
  const names = session.views.map((view) => view.name);
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=range], [type=radio], [type=checkbox]), select, textarea")) return;
    const step = { "[": names.length - 1, "]": 1 }[event.key];
    if (event.key === "?") help.toggle();
    else if (event.key === "Escape") help.close();
    else if (step) open(names[(names.indexOf(current) + step) % names.length], undefined, true);
    else if (!views[current]?.press?.(event)) return;
    event.preventDefault();
  });
  document.getElementById("help-button").addEventListener("click", help.toggle);
}

function navigate() {
  const { view, parameters } = readHash(location.hash);
  const known = session.views.some((each) => each.name === view);
  open(known ? view : session.views[0].name, known ? parameters : undefined, false);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address holds the state of the view
  main.focus();
});
makeThemeButton();
makeLinkButton();
try {
  session = await api("session");
  await Promise.all(session.views.map(load));
  makeTabs();
  const { frames } = session.observation;
  const shape = (frames ? `${frames} frames of ` : "") + session.observation.shape.join(" × ");
  const { layout } = session;
  const latents = layout ? `latents ${[layout.channels, ...layout.places].join(" × ")} (channels × ${layout.names.join(" × ")})` : `${session.latents.length} ${session.latents.length === 1 ? "latent" : "latents"}`;
  document.getElementById("about").textContent =
    `${session.name} · ${session.model}, ${latents} · ${session.data} (${shape}), ${session.samples} samples` + (session.compare ? ` · compared with ${session.compare}` : "");
  makeExportMenu();
  navigate();
  window.addEventListener("hashchange", navigate);
  makeKeys(makeHelp({ session, look: session.observation }, () => views[current]?.shortcuts ?? []));
} catch (error) {
  main.replaceChildren();
  fail(error);
}
