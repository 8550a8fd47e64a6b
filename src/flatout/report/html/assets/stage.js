"use strict";
shown(async () => {
  const {verdict, text, result, charts, span, notes} = await data(), view = new View(...span);
  const names = Object.keys(result).filter((name) => ["number", "string", "boolean"].includes(typeof result[name]) && result[name] !== "");
  const value = (name) => {
    const one = result[name];
    if (typeof one !== "number") return String(one);
    if (name.endsWith("bytes") || name.endsWith("bytes_per_s")) return bytes(one) + (name.endsWith("per_s") ? "/s" : "");
    if (name.endsWith("_s") && !name.endsWith("per_s")) return seconds(one);
    return Number.isInteger(one) ? one.toLocaleString("en") : rate(one);
  };
  const examples = names.filter((name) => name.startsWith("n_") && result[name] > 0 && (result[name.slice(2) + "_examples"] || []).length);
  document.getElementById("page").replaceChildren(
    el("h1", {id: "verdict"}, verdict),
    el("pre", {class: "mono"}, text),
    el("p", {}, download("staging.json", JSON.stringify(result, null, 2))),
    section("Over time", ...charts.length ? [zoomTools(view), ...charts.map((chart) => lineChart(chart, view)), ...notes.map((note) => el("p", {class: "soft"}, note))]
      : [el("p", {}, "Nothing was copied, so that there is no rate.")]),
    ...examples.map((name) => section(`${value(name)} ${name.slice(2).replace("_", " ")}`, list(result[name.slice(2) + "_examples"]))),
    section("In numbers", el("details", {}, el("summary", {}, "Everything that --json has"), table(["", "value"], names.map((name) => [name, value(name)])))));
  document.documentElement.dataset.ready = "yes";
});
