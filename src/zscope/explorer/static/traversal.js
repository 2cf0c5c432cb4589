// The traversal of one latent: decoded observations, and the response of the encoder.

import { Latest, api, h, number } from "./core.js";
import { legend, lines, strip } from "./draw.js";

/** A panel for the traversal of a latent, with the response of that latent and an observed one. */
export function traversal(context, { onpick = null, steps = 11, size = 64 } = {}) {
  const root = h("section", { className: "traversal", hidden: true, "aria-live": "polite" });
  const latest = new Latest(
    async (parameters, observed, signal) => {
      const answer = await api("traversal", { steps, ...parameters }, signal);
      root.hidden = false;
      const latent = answer.latent;
      const others = observed === null || observed === latent ? [] : [observed];
      const captions = answer.values.map((value) => number(value, 1));
      const curve = (k) => answer.response.map((row) => row[k]);
      const chart = lines(
        [
          { values: answer.values, x: answer.values, className: "rule-line" },
          { values: curve(latent), x: answer.values, className: "two" },
          ...others.map((k) => ({ values: curve(k), x: answer.values, className: "three" })),
        ],
        { width: 340, height: 190, x: `value of z${latent}`, y: "response", points: false },
      );
      const names = [["rule-line", "response = value"], ["two", `response of z${latent}`], ...others.map((k) => ["three", `response of z${k}`])];
      root.replaceChildren(
        h("h3", {}, `Traversal of z${latent}`),
        strip(context.look, answer.decoded, { size, captions, label: `z${latent} =`, onpick: onpick && ((k) => onpick(latent, answer.values[k])), marked: (k) => answer.displacement?.[k].hole }),
        h("div", { className: "beside" }, chart, legend(names)),
        answer.displacement?.some((one) => one.hole) ? h("p", { className: "hint" }, "Underlined: in a hole (moves further than 99 % of posterior samples).") : "",
      );
    },
    (error) => {
      blank();
      context.fail(error);
    },
  );
  function blank() {
    root.hidden = true;
    root.replaceChildren();
  }
  return { root, blank, show: (parameters, observed = null) => latest.ask(parameters, observed) };
}
