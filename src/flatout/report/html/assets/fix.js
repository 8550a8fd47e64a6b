"use strict";
// Predicted and measured factor of a trial, one above the other, on one logarithmic axis.
function predictedAndMeasured(trial, most) {
  return [interval(trial.predicted, most), trial.ratio
    ? el("div", {class: "measured"}, interval({predicted: trial.ratio.factor, low: trial.ratio.low, high: trial.ratio.high}, most))
    : el("div", {class: "soft"}, "not measured")];
}

shown(async () => {
  const {result, words, classes} = await data();
  const main = document.getElementById("page"), proof = result.proof;
  const most = Math.min(50, Math.max(2, ...result.tried.flatMap((trial) => [trial.predicted.high || 1, trial.ratio ? trial.ratio.high : 1]), proof ? proof.high : 1));
  const parts = [
    el("h1", {id: "verdict"}, result.verdict),
    el("p", {class: "mono"}, shellLine(result.command)),
    el("p", {class: "soft"}, `It took ${seconds(result.seconds)}. ${result.ended} ${result.isolation}`),
    el("p", {}, download("fix.json", JSON.stringify(result, null, 2))),
    section("Before", el("p", {}, result.diagnosis), el("p", {class: "soft"}, `${rate(result.before)} ${result.unit}`)),
  ];
  if (proof) parts.push(section("Proof", table(["", "#before", "#after", "#factor", "90% interval", "loss"], [[
    proof.unit, rate(proof.before), rate(proof.after), factor(proof.speedup),
    [interval({predicted: proof.speedup, low: proof.low, high: proof.high}, most), `${factor(proof.low)} to ${factor(proof.high)}, ${proof.pairs} pairs of runs`], proof.loss]])));
  if (result.tried.length) parts.push(section("Tried one at a time, each on top of what was kept before it",
    el("p", {class: "soft"}, "Upper mark: predicted. Lower mark: measured. The thin line at 1x is no change."),
    table(["remedy", "outcome", "#predicted", "#measured", "predicted over measured", "why"], result.tried.map((trial) => [
      [el("div", {}, trial.title), el("div", {class: "soft"}, trial.semantic_class)],
      el("strong", {"data-outcome": trial.outcome}, words[trial.outcome] || trial.outcome),
      `${factor(trial.predicted.predicted)} (${factor(trial.predicted.low)}–${factor(trial.predicted.high)})`,
      trial.ratio ? `${factor(trial.ratio.factor)} (${factor(trial.ratio.low)}–${factor(trial.ratio.high)})` : "–",
      predictedAndMeasured(trial, most), [trial.why, trial.loss ? el("div", {class: "soft"}, `loss: ${trial.loss}`) : null]]), true),
    classLegend(classes, result.tried.map((trial) => trial.semantic_class))));
  if (result.untried.length) parts.push(section("Not tried", list(result.untried.map((one) => `${one.title}: ${one.why}`))));
  if (result.keep) parts.push(section("To keep it", el("p", {class: "mono"}, result.keep.command), result.keep.diff ? el("pre", {class: "mono"}, result.keep.diff) : null));
  if (result.plans.length) parts.push(section("Plans for the training as it was, predicted and not measured",
    table(["plan", "#predicted", "interval", "remedies"], result.plans.map((one) => [one.name, `${factor(one.gain.predicted)} (${factor(one.gain.low)}–${factor(one.gain.high)})`, interval(one.gain, most), list(one.remedies)]), true)));
  main.replaceChildren(...parts);
  document.documentElement.dataset.ready = "yes";
});
