// Colours for any colour vision, on light and dark backgrounds.

const OKABE_ITO = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442"];
const PETROFF = ["#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"];

const MOST_CATEGORIES = 60;

export function dark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

const cache = new Map();

/** The colour of a CSS variable in the current theme. */
export function css(name) {
  const key = `${dark()} ${name}`;
  if (!cache.has(key)) {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    cache.set(key, getComputedStyle(probe).color);
    probe.remove();
  }
  return cache.get(key);
}

// Oklab (Ottosson 2020): perceptually uniform.
function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((c) => {
    const value = c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, value)));
  });
}

function ramp(share, hue, chroma) {
  // From the background to full strength: dark on a light background, bright on a dark one.
  const lightness = dark() ? 0.25 + 0.55 * share : 0.985 - 0.545 * share;
  return oklch(lightness, chroma * Math.sin((Math.PI / 2) * Math.min(1, 1.25 * share) ** 1.1), hue);
}

const limit = (share) => Math.min(1, Math.max(0, share));

/** The colour of an amount, share 0 to 1. */
export const amount = (share) => ramp(limit(share), 250, 0.14);

/** The colour of a signed amount, share -1 to 1: blue below 0, red above. */
export const signed = (share) => (share < 0 ? ramp(limit(-share), 250, 0.15) : ramp(limit(share), 30, 0.16));

/** The colour of a continuous factor: from violet over green to yellow, ever lighter. */
export const spectrum = (share) => oklch(0.38 + 0.5 * limit(share), 0.13, 310 - 210 * limit(share));

export const rgb = ([red, green, blue], alpha = 1) => `rgb(${red} ${green} ${blue} / ${alpha})`;

/** Black or white, whichever has more contrast with a colour. */
export function textOn(colour) {
  const [red, green, blue] = colour.map((value) => {
    const c = value / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

/** Colours that neighbours in the list do not share: hues by the golden angle, in three lightnesses. */
const manyColours = (count) => Array.from({ length: count }, (_, k) => rgb(oklch([0.55, 0.72, 0.42][k % 3], 0.14, (40 + 137.508 * k) % 360)));

/** {colour(value), legend: [[text, colour]], continuous} for the values of a factor. */
export function factorColours(factor, values) {
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  const name = (value) => factor.values[Math.round(value)] ?? String(Math.round(value * 1000) / 1000);
  // Categories have no order that a ramp could show.
  if (factor.kind !== "continuous" && distinct.length <= (factor.kind === "categorical" ? MOST_CATEGORIES : PETROFF.length)) {
    const palette = distinct.length <= OKABE_ITO.length ? OKABE_ITO : distinct.length <= PETROFF.length ? PETROFF : manyColours(distinct.length);
    const at = new Map(distinct.map((value, k) => [value, palette[k]]));
    return { colour: (value) => at.get(value), legend: distinct.map((value) => [name(value), at.get(value)]), continuous: false };
  }
  const low = distinct[0];
  const high = distinct[distinct.length - 1];
  const share = (value) => (high > low ? (value - low) / (high - low) : 0.5);
  return { colour: (value) => rgb(spectrum(share(value))), legend: [[name(low), rgb(spectrum(0))], [name(high), rgb(spectrum(1))]], continuous: true };
}
