// What R(z) is, in three steps with the model at hand, and the keys of the page: shown at the first
// visit, and by "?".

import { api, h, number } from "./core.js";
import { observation } from "./draw.js";

const KEY = "zscope-explained";
const YEAR = 365 * 24 * 3600;
const EVERYWHERE = [["?", "this help"], ["[ ]", "the view before, the view after"], ["Tab", "the next control"]];

/** Whether the explanation was seen before; a cookie too, because each start has another port. */
function isKnown() {
  try {
    return localStorage.getItem(KEY) !== null || document.cookie.includes(`${KEY}=1`);
  } catch {
    return false; // a frame without storage of its own
  }
}

function remember() {
  try {
    localStorage.setItem(KEY, "1");
    document.cookie = `${KEY}=1; max-age=${YEAR}; path=/; SameSite=Strict`;
  } catch {
    // it will be shown again
  }
}

/** {open, close, toggle}; `shortcuts()` are the keys of the current view, [key, what it does]. */
export function makeHelp({ session, look }, shortcuts) {
  let step = 0;
  let opener = null;
  let story = null; // what the model made, once it was asked for
  const body = h("div", { className: "step", "aria-live": "polite" });
  const count = h("span", { className: "hint" });
  const back = h("button", { type: "button", onclick: () => go(step - 1) }, "Back");
  const next = h("button", { type: "button", className: "primary", onclick: () => (step < 2 ? go(step + 1) : close()) });
  const keys = h("details", { className: "keys" });
  const panel = h("aside", { id: "help", role: "dialog", "aria-labelledby": "help-title", tabIndex: -1, hidden: true },
    h("div", { className: "help-head" }, h("h2", { id: "help-title" }, "What is R(z)?"), h("button", { type: "button", className: "close", "aria-label": "Close the explanation", onclick: () => close() }, "×")),
    body, h("div", { className: "help-foot" }, count, back, next), keys);
  panel.addEventListener("keydown", (event) => event.key === "Escape" && (event.stopPropagation(), close()));
  document.body.append(panel);

  async function tell() {
    // The latent that matters most, moved to the end of its usual range that is farther away.
    const { z, decoded, sample } = await api("latents", { sample: session.start });
    const { latent } = session.latents[0];
    const usual = session.prior === null ? session.latents[0].high : 2;
    const moved = z.map((value, j) => (j === latent ? (value > 0 ? Math.max(session.latents[0].low, -usual) : usual) : value));
    const answer = await api("latents", { z: moved });
    return { z, decoded, sample, latent, moved, answer };
  }

  const shown = (data, label) => {
    const picture = observation(look, { size: 96, label });
    picture.show(data);
    return h("figure", {}, picture, h("figcaption", {}, label));
  };
  // The latents that matter most, the one that is moved first.
  const few = session.latents.slice(0, 3).map((row) => row.latent);
  const vector = (z) => `${few.map((j) => `z${j} ${number(z[j])}`).join(", ")}${z.length > few.length ? ", …" : ""}`;

  function steps() {
    const arrow = (text) => h("span", { className: "arrow" }, h("span", {}, text), h("b", { "aria-hidden": "true" }, "→"));
    const known = story;
    return [
      ["1. Encode", "The encoder turns an observation into a code z: a few numbers, called latents. What it looks at becomes a point in latent space.",
        known && [shown(known.sample.observation, "observation"), arrow("encode"), h("code", {}, `z:  ${vector(known.z)}`)]],
      ["2. Change a latent, and decode", `The decoder turns any code into an observation.${known ? ` Here z${known.latent} was moved from ${number(known.z[known.latent])} to ${number(known.moved[known.latent])}; the picture shows what that latent means.` : " Change some of a code, and see what it means."}`,
        known && [h("code", {}, `z:  ${vector(known.moved)}`), arrow("decode"), shown(known.answer.decoded, "decoded")]],
      ["3. Encode again: the response R(z)", "The encoder looks at what was decoded. If R(z) equals z, encoder and decoder agree on this code. If R(z) lies far from z, no data have codes there: z is in a hole. And where R(z) does not follow a change of z, the latent is not used.",
        known && [shown(known.answer.decoded, "decoded"), arrow("encode"), h("code", {}, `R(z):  ${vector(known.answer.response)}`)]],
    ];
  }

  function go(to) {
    step = Math.min(2, Math.max(0, to));
    const [title, text, pictures] = steps()[step];
    body.replaceChildren(h("h3", {}, title), h("p", {}, text), ...(pictures ? [h("div", { className: "story" }, pictures)] : []),
      ...(step === 2 && story?.answer.displacement ? [h("p", { className: "hint" }, `‖R(z) − z‖ = ${number(story.answer.displacement.distance)}: this code moves further than ${number(story.answer.displacement.percentile, 0)} % of the codes of data.`)] : []));
    count.textContent = `${step + 1} of 3`;
    back.disabled = step === 0;
    next.textContent = step < 2 ? "Next" : "Done";
  }

  function open(focus = true) {
    opener = document.activeElement;
    panel.hidden = false;
    const row = ([key, text]) => h("tr", {}, h("th", { scope: "row" }, key.split(" ").flatMap((each, k) => [k ? " " : "", h("kbd", {}, each)])), h("td", {}, text));
    keys.replaceChildren(h("summary", {}, "Keyboard"), h("table", {}, h("tbody", {}, [...EVERYWHERE, ...shortcuts()].map(row))));
    keys.open = focus;
    go(0);
    if (focus) panel.focus();
    if (!story && !session.layout)
      tell().then(
        (told) => {
          story = told;
          if (!panel.hidden) go(step);
        },
        () => null, // the texts stand for themselves
      );
  }
  function close() {
    remember();
    panel.hidden = true;
    if (panel.contains(document.activeElement) || document.activeElement === document.body) opener?.focus?.();
  }
  if (!isKnown()) open(false);
  return { open, close, toggle: () => (panel.hidden ? open() : close()) };
}
