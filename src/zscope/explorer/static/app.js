// The page: tabs, header, and one view at a time.

import { GONE, api, h, hashOf, queryOf, readHash } from "./core.js";
import { dark } from "./colour.js";
import * as compare from "./compare.js";
import * as graph from "./graph.js";
import * as latents from "./latents.js";
import * as map from "./map.js";
import * as matrix from "./matrix.js";
import * as samples from "./samples.js";

const MODULES = { latents, map, matrix, graph, samples, compare };
const TITLES = { latents: "Latents", map: "Map", matrix: "Matrix", graph: "Graph", samples: "Samples", compare: "Compare" };

const main = document.getElementById("view");
const alertBox = document.getElementById("alert");
const made = {};
const remembered = {};
let current = null;
let saving = null;

const failures = new Map(); // from what was asked to what went wrong

function fail(error) {
  if (error.name === "AbortError") return;
  failures.set(error.about, error.message);
  complain();
}

/** Take the message about `question` away, or all of them. */
function clear(question = null) {
  if (question === null) failures.clear();
  else failures.delete(question);
  complain();
}

function complain() {
  alertBox.hidden = failures.size === 0;
  if (alertBox.hidden) alertBox.replaceChildren();
  else
    alertBox.replaceChildren(
      h("span", {}, [...new Set(failures.values())].map((message) => h("p", {}, message))),
      h("button", { type: "button", "aria-label": "Dismiss the message", onclick: () => clear() }, "×"),
    );
}

document.addEventListener("answered", (event) => {
  if (failures.delete(GONE) | failures.delete(event.detail)) complain();
});

/** What a view may do to the page. */
function contextOf(name, session) {
  return {
    session,
    look: session.observation,
    fail,
    clear,
    say: (text) => (document.getElementById("said").textContent = text),
    /** Keep the state of the view in the address; `twin` are the parameters of its JSON. */
    save(parameters, twin) {
      remembered[name] = parameters;
      if (current !== name) return;
      // Not at every move of a slider: browsers refuse hundreds of addresses a second.
      clearTimeout(saving);
      saving = setTimeout(() => {
        history.replaceState(null, "", hashOf(name, parameters));
        setTwin(twin ?? [name, parameters]);
      }, 100);
    },
    go: (view, parameters) => open(view, parameters, true),
    stateOf: (view) => remembered[view] ?? {},
  };
}

function setTwin([endpoint, parameters]) {
  const query = queryOf(parameters);
  document.getElementById("twin").href = `/api/${endpoint}${query.length < 30000 && query ? `?${query}` : ""}`;
}

function open(name, parameters, push) {
  clear();
  clearTimeout(saving);
  const moved = current !== name;
  current = name;
  const state = parameters ?? remembered[name] ?? {};
  remembered[name] = state;
  if (push) history.pushState(null, "", hashOf(name, state));
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.dataset.view === name;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen) tab.scrollIntoView({ inline: "nearest", block: "nearest" });
  }
  document.title = `${TITLES[name]} · ${about.name} · zscope`;
  if (moved) {
    made[name] ??= MODULES[name].make(contextOf(name, about));
    const panel = h("section", { id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}` }, made[name].root);
    main.replaceChildren(panel);
  }
  setTwin([name, {}]);
  made[name].show(state);
}

function tabs() {
  const bar = document.getElementById("tabs");
  const names = Object.keys(TITLES);
  for (const name of names) {
    bar.append(
      h("button", { type: "button", role: "tab", id: `tab-${name}`, dataset: { view: name }, "aria-controls": `panel-${name}`, tabIndex: -1, onclick: () => open(name, undefined, true) }, TITLES[name]),
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

function theme() {
  const button = document.getElementById("theme");
  const set = (name) => {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    button.textContent = dark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", dark() ? "Use light colours" : "Use dark colours");
    for (const view of Object.values(made)) view.recolour?.();
  };
  button.addEventListener("click", () => {
    const name = dark() ? "light" : "dark";
    localStorage.setItem("zscope-theme", name);
    set(name);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => set(localStorage.getItem("zscope-theme")));
  set(localStorage.getItem("zscope-theme"));
}

function link() {
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

function navigate() {
  const { view, parameters } = readHash(location.hash);
  const known = Object.hasOwn(MODULES, view);
  open(known ? view : "latents", known ? parameters : undefined, false);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address holds the state of the view
  main.focus();
});
tabs();
theme();
link();
let about = null;
try {
  about = await api("session");
  const shape = about.observation.shape.join(" × ");
  document.getElementById("about").textContent =
    `${about.name} · ${about.model}, ${about.latents.length} latents · ${about.data} (${shape}), ${about.samples} samples` + (about.compare ? ` · beside ${about.compare}` : "");
  navigate();
  window.addEventListener("hashchange", navigate);
} catch (error) {
  main.replaceChildren();
  fail(error);
}
