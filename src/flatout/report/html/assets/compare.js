"use strict";
// Durations of the steps of both sides, as shares of the steps, on one axis.
function distributions(found, sides) {
  const [canvas] = drawing(170, "How long the steps take", (context, width, height) => {
    const bins = found.a.length, most = Math.max(...found.a, ...found.b, 1e-12), floor = height - 18, left = 8;
    const x = (place) => left + place / bins * (width - 2 * left);
    for (const [name, hue] of [["a", "--c1"], ["b", "--c2"]]) {
      context.beginPath();
      context.moveTo(x(0), floor);
      found[name].forEach((share, place) => { const y = floor - share / most * (floor - 8); context.lineTo(x(place), y); context.lineTo(x(place + 1), y); });
      context.lineTo(x(bins), floor);
      context.fillStyle = context.strokeStyle = colour(hue);
      context.globalAlpha = 0.28; context.fill();
      context.globalAlpha = 1; context.stroke();
    }
    context.fillStyle = colour("--soft");
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      const value = found.edges[0] * (found.edges[1] / found.edges[0]) ** part; // the axis is logarithmic
      context.textAlign = part === 0 ? "left" : part === 1 ? "right" : "center";
      context.fillText(seconds(value), x(part * bins), height - 4);
    }
    context.textAlign = "left";
  });
  return el("figure", {},
    el("div", {}, [["A", "--c1"], ["B", "--c2"]].map(([name, hue]) => el("span", {class: "key"}, el("i", {style: {background: `var(${hue})`}}), name))),
    canvas, el("figcaption", {}, `Share of the steps by duration, logarithmic axis; ${sides.a.steps} and ${sides.b.steps} steps.`));
}

shown(async () => {
  const {verdict, notes, result, sides, rows, amount, unit, steps} = await data();
  const per = unit.split("/")[0], longest = Math.max(sides.a.whole_s, sides.b.whole_s);
  const most = Math.max(...rows.map((row) => Math.abs(row.b_s - row.a_s)), 1e-12);
  const side = (name) => el("div", {},
    el("h3", {}, `${name.toUpperCase()} · ${seconds(sides[name].whole_s)}`), el("p", {class: "soft", "data-run": name}, sides[name].run), el("p", {class: "mono"}, sides[name].command),
    el("div", {style: {width: 100 * sides[name].whole_s / longest + "%"}}, icicle(sides[name].accounts, sides[name].whole_s)));
  const change = (row) => {
    const difference = row.b_s - row.a_s, wide = 50 * Math.abs(difference) / most;
    return el("div", {class: "bar", role: "img", "aria-label": seconds(difference), style: {minWidth: "140px"}},
      el("i", {style: {left: (difference < 0 ? 50 - wide : 50) + "%", width: wide + "%", background: difference < 0 ? "var(--c3)" : "var(--c5)"}}));
  };
  const ratio = result.ratio;
  document.getElementById("page").replaceChildren(
    el("h1", {id: "verdict"}, verdict),
    el("p", {}, download("comparison.json", JSON.stringify(result, null, 2))),
    section("The factor", table(["", "#A", "#B", "#B over A", "90% interval"], [
      [unit, rate(result.a.rate), rate(result.b.rate), factor(ratio.factor),
        [interval({predicted: ratio.factor, low: ratio.low, high: ratio.high}, Math.max(2, ratio.high)), `${factor(ratio.low)} to ${factor(ratio.high)}`]],
      ["median step", seconds(result.a.median_step_s), seconds(result.b.median_step_s), "", ""]]),
      notes.map((note) => el("p", {class: "soft"}, note))),
    section(`Where the time went: ${amount.toLocaleString("en")} ${per}, both on one scale`, side("a"), side("b")),
    section("Where the difference is", 
      table(["account", "#A", "#B", "#difference", "less or more"], rows.map((row) => [row.label, seconds(row.a_s), seconds(row.b_s), (row.b_s > row.a_s ? "+" : "") + seconds(row.b_s - row.a_s), change(row)]))),
    section("How long a step takes", distributions(steps, sides)));
  document.documentElement.dataset.ready = "yes";
});
