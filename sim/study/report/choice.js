"use strict";
// The data of the charts, and whose lines stand out in them.
const choice = (() => {
  const { COLORS, color, nth } = paint;
  const data = JSON.parse(document.getElementById("data").textContent);
  const pinned = new Map();
  let hot = null;
  const listeners = [];

  const facet = () => data.facets[page.chosen.facet || data.facets_in_order[0]];
  const groups = () => (facet() ? facet().groups : []);
  const group = (label) => groups().find((found) => found.label === label);

  const pinDefaults = () => {
    pinned.clear();
    data.standing.forEach((label, index) => pinned.set(label, index));
  };
  const pin = (label) => {
    if (pinned.has(label)) return;
    const taken = new Set(pinned.values());
    const free = [...Array(COLORS).keys()].find((index) => !taken.has(index));
    pinned.set(label, free === undefined ? pinned.size % COLORS : free);
  };
  const colorOf = (label) => {
    if (pinned.has(label)) return nth(pinned.get(label), data.standing.length, data.ordered);
    return color(label === hot ? "ink" : "muted");
  };
  const stands = (label) => pinned.has(label) || label === hot;

  const wire = (figure) => {
    figure.dataset.wired = "yes";
    figure.on("plotly_click", ({ points }) => points[0].data.meta && toggle(points[0].data.meta));
    figure.on("plotly_hover", ({ points }) => mark(points[0].data.meta || points[0].customdata));
    figure.on("plotly_unhover", () => mark(null));
  };
  const mark = (label) => {
    for (const chip of document.querySelectorAll(".chip")) {
      chip.classList.toggle("near", chip.dataset.label === label);
    }
  };

  const changed = (what) => listeners.forEach((listener) => listener(what));

  const toggle = (label) => {
    if (pinned.has(label)) pinned.delete(label);
    else pin(label);
    changed();
  };

  const legend = () => {
    for (const chip of document.querySelectorAll(".chip[data-label]")) {
      const { label } = chip.dataset;
      chip.setAttribute("aria-pressed", String(pinned.has(label)));
      chip.style.setProperty("--swatch", pinned.has(label) ? colorOf(label) : "var(--muted)");
      chip.hidden = !group(label);
    }
  };
  const wireLegend = () => {
    for (const chip of document.querySelectorAll(".chip[data-label]")) {
      const { label } = chip.dataset;
      chip.addEventListener("click", () => toggle(label));
      chip.addEventListener("pointerenter", () => { hot = label; changed("hot"); });
      chip.addEventListener("pointerleave", () => { hot = null; changed("hot"); });
    }
    const on = (id, act) => document.getElementById(id)?.addEventListener("click", () => { act(); changed(); });
    on("best", pinDefaults);
    on("nobody", () => pinned.clear());
  };

  return {
    data, pinned, facet, groups, colorOf, stands, pinDefaults, legend, wire, wireLegend,
    listen: (listener) => listeners.push(listener),
  };
})();
