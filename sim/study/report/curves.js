"use strict";
// Curves over steps, virtual time or bytes, each with a band.
const curves = (() => {
  const {
    settings, color, faint, escaped, short, significant, scaleOf, shown, apart, rangeOf, axis, layout,
  } = paint;
  const { data, pinned, groups, colorOf, stands } = choice;

  // Those who are all alike at most moments have no line on a logarithmic axis, but a word.
  const isNothing = (curve) => curve[1].filter((mean) => mean <= 0).length > curve[1].length / 2;

  // A logarithm has no place for 0, where everybody begins from one model.
  const usable = (curve, isLog) => {
    if (!curve || !isLog) return curve;
    if (isNothing(curve)) return undefined;
    const kept = curve[1].flatMap((mean, i) => (mean > 0 ? [i] : []));
    const [at, mean, low, high] = curve.map((values) => kept.map((i) => values[i]));
    const least = Math.min(...mean) / 10;
    return kept.length ? [at, mean, low.map((value) => Math.max(value, least)), high] : undefined;
  };

  const lines = (figure) => {
    const y = data.ys.find((one) => one.key === figure.dataset.y);
    const x = data.xs.find((one) => one.key === (page.chosen.x || data.xs[0].key));
    const present = groups().map((one) => ({ ...one, curve: usable((one.curves[y.key] || {})[x.key], y.log) }))
      .filter((one) => one.curve);
    const alike = groups().filter((one) => one.curves[y.key]?.[x.key] && y.log
      && isNothing(one.curves[y.key][x.key])).map((one) => one.label);
    const [unit, size] = scaleOf(x.unit, Math.max(...present.flatMap(({ curve }) => curve[0].slice(-1)), 0));
    const isLogX = document.getElementById("log-x").checked;
    // What stands out is drawn last, above the rest.
    present.sort((a, b) => stands(a.label) - stands(b.label));
    const traces = present.flatMap((one) => tracesOf(one, x, y, unit, size));
    const times = y.unit === "%" ? 100 : 1;
    const yRange = rangeOf(present.flatMap(({ label, curve }) =>
      (stands(label) ? curve.slice(1).flat() : curve[1])), y.log);
    const firsts = present.map(({ curve }) => curve[0].find((at) => at > 0) / size);
    const lasts = present.map(({ curve }) => curve[0].at(-1) / size);
    const xRange = isLogX ? rangeOf([...firsts, ...lasts], true) : [0, Math.max(...lasts, 1e-9) * 1.01];
    const isWide = figure.clientWidth > 480;
    const labels = isWide ? present.filter(({ label }) => stands(label)) : [];
    const right = labels.length
      ? Math.min(180, 16 + 6.8 * Math.max(...labels.map(({ label }) => short(label, 25).length))) : 10;
    const margin = { l: 56, r: right, t: 10, b: 46 };
    const height = figure.clientHeight - margin.t - margin.b;
    Plotly.react(figure, traces, layout({
      margin,
      xaxis: axis(unit ? `${x.title}, ${unit}` : x.title, xRange, isLogX),
      yaxis: axis("", yRange.map((end) => end * times), y.log, y.unit === "%" ? { ticksuffix: " %" } : {}),
      shapes: y.target ? [{
        type: "line", xref: "paper", x0: 0, x1: 1, y0: 100 * data.target, y1: 100 * data.target,
        line: { color: color("dim"), width: 1, dash: "dot" },
      }] : [],
      annotations: [
        ...(y.target ? targetLabel(present) : []),
        ...(alike.length ? alikeLabel(alike) : []),
        ...directLabels(labels, y, yRange, height, times),
      ],
    }), settings);
    if (!figure.dataset.wired) choice.wire(figure);
  };

  // Where the fewest lines are: below the target at the end, or above it at the start.
  const targetLabel = (present) => {
    const at = ([, mean], part) => mean[Math.floor(part * (mean.length - 1))];
    const isNear = (value) => value <= data.target && value > data.target - 0.1;
    const later = present.filter(({ curve }) => isNear(at(curve, 0.85)) || isNear(at(curve, 1))).length;
    const early = present.filter(({ curve }) => at(curve, 0.12) > data.target).length;
    const isEnd = later < early || (later === early && present.some(({ curve }) => at(curve, 1) > data.target));
    return [{
      xref: "paper", x: isEnd ? 1 : 0, xanchor: isEnd ? "right" : "left", y: 100 * data.target,
      yanchor: isEnd ? "top" : "bottom", showarrow: false,
      bgcolor: faint(color("bg"), 0.7), borderpad: 1,
      text: `target ${significant(100 * data.target)} %`, font: { size: 12, color: color("dim") },
    }];
  };

  const alikeLabel = (labels) => [{
    xref: "paper", x: 0, xanchor: "left", xshift: 4, yref: "paper", y: 0, yanchor: "bottom", showarrow: false,
    align: "left", text: `0, all alike: ${escaped(short(labels.join(", "), 40))}`,
    font: { size: 12.5, color: labels.length === 1 ? colorOf(labels[0]) : color("dim") },
  }];

  const directLabels = (present, y, range, height, times) => {
    const ends = present.map(({ curve }) => (y.log ? Math.log10(curve[1].at(-1)) : curve[1].at(-1)));
    const places = ends.map((end) => height * (1 - (end - range[0]) / (range[1] - range[0])));
    const moved = apart(places, 16, 4, height - 4);
    return present.map(({ label }, index) => ({
      xref: "paper", x: 1, xanchor: "left", xshift: 6, y: times * ends[index],
      yshift: places[index] - moved[index], yanchor: "middle", showarrow: false, align: "left",
      text: escaped(short(label, 25)), font: { size: 12.5, color: colorOf(label) },
    }));
  };

  const scaled = (value, times) => (value === null ? null : value * times);

  // Where many overlap, what is below must still be seen.
  const bandOpacity = () => (pinned.size > 4 ? 0.1 : 0.16);

  const tracesOf = ({ label, curve, kind }, x, y, unit, size) => {
    const [at, mean, low, high] = curve;
    const places = at.map((value) => value / size);
    const times = y.unit === "%" ? 100 : 1;
    const text = mean.map((value, i) => `${shown(value, y.unit)}${kind === "single" ? ""
      : ` (${shown(low[i], y.unit)} to ${shown(high[i], y.unit)})`}<br>at ${shown(at[i], x.unit)}${x.unit ? "" : " steps"}`);
    const line = {
      x: places, y: mean.map((value) => scaled(value, times)), text, name: label, meta: label, mode: "lines", type: "scatter",
      hovertemplate: `<b>${escaped(label)}</b><br>%{text}<extra></extra>`,
      line: { color: colorOf(label), width: stands(label) ? 2.2 : 1.1 },
    };
    if (!stands(label) || kind === "single") return [line];
    const band = {
      x: [...places, ...[...places].reverse()], y: [...high, ...[...low].reverse()].map((value) => scaled(value, times)),
      mode: "lines", type: "scatter", fill: "toself", fillcolor: faint(colorOf(label), bandOpacity()),
      line: { width: 0 }, hoverinfo: "skip",
    };
    return [band, line];
  };

  return { draw: () => document.querySelectorAll(".plot[data-y]").forEach(lines) };
})();
