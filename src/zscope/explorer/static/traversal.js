// One latent moved over its range: pictures, and what the encoder answers.

import { Latest, api, h, number } from "./core.js";
import { key, lines, strip } from "./draw.js";

/** A panel that shows the traversal of a latent, and the response of the observed one. */
export function traversal(context, { onpick = null, steps = 11, size = 64 } = {}) {
  const root = h("section", { className: "traversal", hidden: true, "aria-live": "polite" });
  const latest = new Latest(async (question, observed, signal) => {
    try {
      const found = await api("traversal", { steps, ...question }, signal);
      root.hidden = false;
      const latent = found.latent;
      const others = observed === null || observed === latent ? [] : [observed];
      const captions = found.values.map((value) => number(value, 1));
      const curve = (k) => found.response.map((row) => row[k]);
      const chart = lines(
        [
          { values: found.values, x: found.values, className: "rule-line" },
          { values: curve(latent), x: found.values, className: "two" },
          ...others.map((k) => ({ values: curve(k), x: found.values, className: "three" })),
        ],
        { width: 340, height: 190, x: `z${latent} as decoded`, y: "response", points: false },
      );
      const names = [["rule-line", "no change"], ["two", `R${latent}: the latent itself`], ...others.map((k) => ["three", `R${k}: observed`])];
      root.replaceChildren(
        h("h3", {}, `Traversal of z${latent}`),
        strip(context.look, found.decoded, { size, captions, label: `latent ${latent} at`, onpick: onpick && ((k) => onpick(latent, found.values[k])), marked: (k) => found.moved?.[k].hole }),
        h("div", { className: "beside" }, chart, key(names)),
        found.moved?.some((one) => one.hole) ? h("p", { className: "hint" }, "Underlined: in a hole, it moves further than 99 % of posterior samples do.") : "",
      );
    } catch (error) {
      context.fail(error);
    }
  });
  return { root, show: (question, observed = null) => latest.ask(question, observed) };
}
