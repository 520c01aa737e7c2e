"use strict";
// What an axis of numbers does: a line for every combination of the other axes.
const response = (() => {
  const {
    COLORS, settings, color, escaped, short, significant, scaleOf, shown, nth, apart, rangeOf, axis, layout,
  } = paint;
  const { data, pinned, colorOf } = choice;

  // A line of the first axis has the color that it has everywhere.
  const paintOf = ({ label }, index, count) => {
    if (!data.response.of_main && pinned.has(label)) return colorOf(label);
    return count > COLORS ? color("dim") : nth(index, count, false);
  };

  const textOf = (label, [at, mean, low, high], unit) =>
    `<b>${escaped(label)}</b><br>${escaped(data.response.axis)} ${significant(at)}<br>${shown(mean, unit)}`
    + (low === null ? "" : ` (${shown(low, unit)} to ${shown(high, unit)})`);

  const traceOf = ({ label, points }, ink, unit, size, least) => ({
    type: "scatter", mode: "lines+markers", name: escaped(label), customdata: points.map(() => label),
    x: points.map(([at]) => at), y: points.map(([, mean]) => mean / size),
    text: points.map((point) => textOf(label, point, unit)), hovertemplate: "%{text}<extra></extra>",
    line: { color: ink, width: 2 }, marker: { color: ink, size: 7 },
    error_y: {
      type: "data", symmetric: false, thickness: 1.2, width: 0, color: ink,
      array: points.map(([, mean, , high]) => (high === null ? 0 : (high - mean) / size)),
      arrayminus: points.map(([, mean, low]) => (low === null ? 0 : (mean - Math.max(low, least)) / size)),
    },
  });

  const labelsOf = (named, inks, size, isLog, range, height) => {
    const ends = named.map(({ points }) => points.at(-1)[1] / size).map((end) => (isLog ? Math.log10(end) : end));
    const places = ends.map((end) => height * (1 - (end - range[0]) / (range[1] - range[0])));
    const moved = apart(places, 16, 4, height - 4);
    return named.map(({ label }, index) => ({
      xref: "paper", x: 1, xanchor: "left", xshift: 6, y: ends[index], yshift: places[index] - moved[index],
      yanchor: "middle", showarrow: false, text: escaped(short(label, 26)), font: { size: 12.5, color: inks[index] },
    }));
  };

  const lines = (figure) => {
    const all = data.response;
    const one = all.measures[page.chosen.response] || Object.values(all.measures)[0];
    const points = one.lines.flatMap((line) => line.points);
    const means = points.map(([, mean]) => mean);
    const isLog = one.ratio && Math.min(...means) > 0 && Math.max(...means) / Math.min(...means) > 10;
    const [unit, size] = one.unit === "%" ? ["", 0.01] : scaleOf(one.unit, Math.max(...means));
    const least = isLog ? Math.min(...means) / 2 : -Infinity;
    const known = points.flatMap((point) => point.slice(1)).filter((value) => value !== null);
    const yRange = rangeOf(known.map((value) => Math.max(value, least) / size), isLog);
    const inks = one.lines.map((line, index) => paintOf(line, index, one.lines.length));
    const isWide = figure.clientWidth > 480 && one.lines.length > 1;
    const named = isWide ? one.lines.slice(0, 2 * COLORS) : [];
    const letters = Math.max(0, ...named.map(({ label }) => short(label, 26).length));
    const margin = { l: 64, r: isWide ? Math.min(190, 18 + 7 * letters) : 12, t: 12, b: 50 };
    const height = figure.clientHeight - margin.t - margin.b;
    // All numbers are below, so that it is seen where nobody arrived.
    const ticks = { tickmode: "array", tickvals: all.numbers, ticktext: all.labels.map(escaped) };
    Plotly.react(figure, one.lines.map((line, i) => traceOf(line, inks[i], one.unit, size, least)), layout({
      margin,
      xaxis: axis(all.axis, rangeOf(all.numbers, all.log), all.log, ticks),
      yaxis: axis(unit ? `${one.title}, ${unit}` : one.title, yRange, isLog,
        one.unit === "%" ? { ticksuffix: " %" } : {}),
      annotations: labelsOf(named, inks, size, isLog, yRange, height),
      showlegend: !isWide && one.lines.length > 1,
      legend: { orientation: "h", y: -0.25, font: { size: 12 } },
    }), settings);
  };

  const draw = () => {
    const figure = document.getElementById("response-plot");
    if (figure) lines(figure);
  };
  return { draw };
})();
