// Figures in words, and elements made of text alone: what peers say never becomes HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Put what may be text, a number or an element into another; text stays text. */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const html = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

export const find = (id) => document.getElementById(id);

/** Names from elsewhere, with what would turn text around or hide it made visible. */
export function shownName(text, most = 24) {
  const plain = String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "\u{FFFD}");
  const letters = [...plain];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : plain;
}

/** A number in a few characters; "–" where it is not known. */
export function amount(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size >= 1e15) return value.toExponential(1);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]])
    if (size >= 0.9995 * unit) return `${Number((value / unit).toPrecision(digits))}${letter}`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(digits))}k`;
  if (size >= 999.5) return String(Math.round(value));
  if (size > 0 && size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(digits)));
}

export const whole = (value) =>
  typeof value === "number" ? Math.round(value).toLocaleString("en") : "–";

export const bytes = (value) =>
  typeof value === "number" ? `${amount(Math.round(value))}B`.replace(/(\d)([A-Zk]?)B$/, "$1 $2B") : "–";

export const rate = (value) => (typeof value === "number" ? `${bytes(value)}/s` : "–");

/** Seconds, as "0.42 ms", "3.2 s", "1:23" or "2:01:40". */
export function span(seconds) {
  if (typeof seconds !== "number") return "–";
  if (seconds < 0.9995) return `${Number((1000 * seconds).toPrecision(seconds < 0.0995 ? 2 : 3))} ms`;
  if (seconds < 60) return `${Number(seconds.toPrecision(2))} s`;
  const all = Math.round(seconds), two = (part) => String(part).padStart(2, "0");
  const hours = Math.floor(all / 3600), minutes = Math.floor(all / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(all % 60)}` : `${minutes}:${two(all % 60)}`;
}

/** A moment, in seconds since the epoch, on the reader's own clock. */
export const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString("en-GB");

/** peer-2 before peer-10. */
const collator = new Intl.Collator("en", { numeric: true });
export const byName = (a, b) => collator.compare(a, b) || (a < b ? -1 : a > b ? 1 : 0);

/** What a state means, in the order of the legend. */
export const STATES = new Map([
  ["training", "trains"],
  ["joining", "is joining"],
  ["seeking", "looks for the swarm"],
  ["waiting", "waits for others, as its rule says"],
  ["finished", "has taken its last step"],
  ["quiet", "pushes no more"],
  ["leaving", "is leaving"],
  ["cut off", "answers here, but others do not hear it"],
  ["suspected", "does not answer, and others suspect it"],
  ["silent", "does not answer; others have not noticed"],
  ["dead", "considered dead"],
  ["left", "has left"],
]);

/** The class by which a state is colored. */
export const look = (state) => (STATES.has(state) ? `is-${state.replace(" ", "-")}` : "is-unknown");

const SENTENCES = {
  founded: "founded the swarm",
  joined: "joined",
  suspected: "is suspected",
  recovered: "is back",
  died: "is considered dead",
  left: "left",
  full: "has no room for more members",
};

/** What has happened, as a sentence. */
export function sentence(event) {
  const what = SENTENCES[event.event] ?? shownName(event.event);
  const donor = event.donor ? `, as a copy of ${shownName(event.donor)}` : "";
  const tellers = event.told_by ?? [];
  const told = tellers.length && tellers[0] !== event.peer ? ` (reported by ${tellers.length === 1 ? shownName(tellers[0]) : `${tellers.length} members`})` : "";
  return `${shownName(event.peer)} ${what}${donor}${told}`;
}
