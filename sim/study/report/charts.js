"use strict";
// All charts: drawn, and drawn again when something is chosen.
const charts = (() => {
  const draw = () => {
    choice.legend();
    curves.draw();
    spots.draw();
    response.draw();
  };

  const start = () => {
    choice.pinDefaults();
    choice.wireLegend();
    spots.wire();
    document.getElementById("log-x")?.addEventListener("change", curves.draw);
    page.listen(draw);
    // Whoever a pointer is on stands out at once, and in the curves only.
    choice.listen((what) => (what === "hot" ? curves.draw() : draw()));
    draw();
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth === width) return;
      width = innerWidth;
      draw();
    });
  };
  return { start };
})();
