"use strict";
// Colors, figures, ticks and axes: what all charts have in common.
const paint = (() => {
  const COLORS = 7;
  const settings = { displayModeBar: false, responsive: false, doubleClick: "reset" };

  const probe = document.createElement("i");
  probe.hidden = true;
  document.body.append(probe);
  const color = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const faint = (solid, opacity) => solid.replace(/^rgba?\(([^)]*)\)$/, (_, inside) =>
    `rgba(${inside.split(",").slice(0, 3).join(",")},${opacity})`);
  const escaped = (text) =>
    text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  const significant = (value) => {
    if (value === null || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
    return Number(value.toPrecision(3)).toLocaleString("en-US", { maximumFractionDigits: 6 });
  };
  const BYTES = [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]];
  const TIMES = [["h", 3600], ["min", 60], ["s", 1]];
  const scaleOf = (unit, most) => {
    if (unit === "bytes") return BYTES.find(([, size]) => most >= size) || ["B", 1];
    if (unit === "s") return TIMES.find(([, size]) => most >= 2.5 * size) || ["s", 1];
    return [unit, 1];
  };
  const shown = (value, unit) => {
    if (unit === "%") return `${significant(100 * value)} %`;
    const [name, size] = scaleOf(unit, Math.abs(value));
    return `${significant(value / size)}${name ? ` ${name}` : ""}`;
  };

  // From the first of an order to its last, over three colors.
  const shade = (part) => {
    const at = 2 * part;
    const [from, to] = (at < 1 ? ["s0", "s1"] : ["s1", "s2"])
      .map((name) => color(name).match(/[\d.]+/g).slice(0, 3).map(Number));
    const rest = at < 1 ? at : at - 1;
    return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * rest)).join(",")})`;
  };
  const nth = (index, all, isOrdered) =>
    (isOrdered && all > 2 ? shade(Math.min(1, index / (all - 1))) : color(`c${index % COLORS}`));

  // Labels one below the other, each as near to where it belongs as the others let it.
  const apart = (places, gap, least, most) => {
    const order = places.map((at, index) => ({ at, index })).sort((a, b) => a.at - b.at);
    order.forEach((one, i) => {
      if (i) one.at = Math.max(one.at, order[i - 1].at + gap);
    });
    for (let i = order.length - 1; i >= 0; i -= 1) {
      const limit = i === order.length - 1 ? most : order[i + 1].at - gap;
      order[i].at = Math.max(least, Math.min(order[i].at, limit));
    }
    const found = [];
    order.forEach(({ at, index }) => { found[index] = at; });
    return found;
  };

  const rangeOf = (values, isLog) => {
    const usable = values.filter((value) => Number.isFinite(value) && (!isLog || value > 0));
    if (!usable.length) return isLog ? [-1, 0] : [0, 1];
    let [least, most] = [Math.min(...usable), Math.max(...usable)];
    if (isLog) [least, most] = [Math.log10(least), Math.log10(most)];
    const room = 0.06 * (most - least) || Math.abs(most) * 0.1 || 0.1;
    return [least - room, most + room];
  };

  // Plain figures while they are short: 0.02 says more than 2 times a power.
  const logTicks = ([low, high]) => {
    const within = (steps) => {
      const found = [];
      for (let power = Math.floor(low); power <= high; power += 1) {
        for (const step of steps) {
          const at = power + Math.log10(step);
          if (at >= low && at <= high) found.push(step * 10 ** power);
        }
      }
      return found;
    };
    let values = within([1]);
    if (values.length < 3) values = within([1, 2, 5]);
    if (values.length < 3) values = within([1, 1.5, 2, 3, 5, 7]);
    if (values.length > 7) values = values.filter((_, i) => i % Math.ceil(values.length / 7) === 0);
    return { tickmode: "array", tickvals: values, ticktext: values.map(significant) };
  };

  const axis = (title, range, isLog, more) => ({
    title: { text: title, standoff: 10, font: { size: 13 } }, tickfont: { size: 12.5 },
    range, type: isLog ? "log" : "linear", autorange: false,
    gridcolor: color("line"), zeroline: false, linecolor: color("line"), showline: false,
    tickcolor: color("line"), fixedrange: matchMedia("(pointer: coarse)").matches,
    ...(isLog ? logTicks(range) : {}),
    ...more,
  });

  const layout = (more) => ({
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: color("dim") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    hovermode: "closest", hoverdistance: 12, dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: {
      bgcolor: color("bg"), bordercolor: color("muted"), align: "left",
      font: { family: getComputedStyle(document.body).fontFamily, color: color("ink"), size: 13 },
    },
    ...more,
  });

  return {
    COLORS, settings, color, faint, escaped, short, significant, scaleOf, shown, nth, apart, rangeOf, axis, layout,
  };
})();
