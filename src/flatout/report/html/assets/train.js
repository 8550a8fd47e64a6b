"use strict";
// Each plan as a bar as long as the limit: used so far, needed for what is planned, and what is left over.
function plans(deadline) {
  const part = (value) => 100 * Math.max(0, Math.min(1, value / deadline.limit_s)) + "%";
  const bars = (one) => el("div", {class: "plan", role: "img", "aria-label": `${seconds(one.at_s)} used, ${seconds(one.needed_s)} needed, of ${seconds(deadline.limit_s)}`},
    el("i", {class: "used", style: {width: part(one.at_s)}}), el("i", {class: "needed", style: {width: part(Math.min(one.needed_s, deadline.limit_s - one.at_s))}}));
  // A plan that is the one before it says nothing new.
  const changed = deadline.plans.filter((one, at, all) => !at || at === all.length - 1 || one.folds !== all[at - 1].folds || one.epochs !== all[at - 1].epochs);
  return section(`Plan to the deadline of ${seconds(deadline.limit_s)}`,
    el("p", {class: "soft"}, `${seconds(deadline.used_s)} of it were used. The recipe asks for ${deadline.folds} × ${deadline.epochs} epochs; each plan is predicted from the epochs measured before it. Fewer epochs are less work, not a faster training.${changed.length < deadline.plans.length ? " Plans that did not change are left out." : ""}`),
    deadline.plans.length ? el("div", {}, el("span", {class: "key"}, el("i", {class: "used"}), "used"), el("span", {class: "key"}, el("i", {class: "needed"}), "needed for the plan"), el("span", {class: "key"}, el("i", {class: "spare"}), "left over")) : null,
    deadline.plans.length ? table(["after", "#an epoch takes", "#planned epochs", "#of the work", "#needed", "#left for it", "of the limit"], changed.map((one) => [
      `${deadline.folds > 1 ? `fold-${one.folds_done}, ` : ""}epoch ${one.epochs_done}`, seconds(one.epoch_s), `${one.folds} × ${one.epochs}`,
      percent(one.folds * one.epochs / (deadline.folds * deadline.epochs)), seconds(one.needed_s), seconds(Math.max(one.left_s, 0)), bars(one)]))
      : el("p", {}, "No epoch had ended, so that no plan was made."));
}

function epochs(fit) {
  const times = (one) => {
    const whole = one.train_s + one.validation_s, part = (value) => 100 * value / whole + "%";
    return el("div", {class: "plan", role: "img", "aria-label": `waiting ${seconds(one.wait_s)}, training ${seconds(one.train_s - one.wait_s)}, validation ${seconds(one.validation_s)}`},
      el("i", {class: "waited", style: {width: part(one.wait_s)}}), el("i", {class: "trained", style: {width: part(one.train_s - one.wait_s)}}), el("i", {class: "validated", style: {width: part(one.validation_s)}}));
  };
  const number = (value) => value === null ? "–" : Number(value.toPrecision(4)).toString();
  return section(fit.name ? `Epochs of ${fit.name}` : "Epochs",
    el("div", {}, ["waited", "trained", "validated"].map((name, at) => el("span", {class: "key"}, el("i", {class: name}), ["waiting for data", "training", "validation"][at]))),
    table(["epoch", ...fit.metrics.map((name) => "#" + name), "#samples/s", "#time", "#waiting", "where the time went"], fit.epochs.map((one) => [
      [one.epoch + 1, one.epoch === fit.best ? el("strong", {}, " best") : null], ...one.metrics.map(number), rate(one.samples_per_s), seconds(one.train_s + one.validation_s), percent(one.train_s ? one.wait_s / one.train_s : null), times(one)])),
    el("p", {class: "soft"}, "In metrics.csv, and in the names of checkpoints, epochs count from 0."),
    fit.stopped ? el("p", {}, `Ended early: ${fit.stopped}`) : null, fit.notes.length ? list(fit.notes) : null);
}

shown(async () => {
  const found = await data(), view = new View(...found.steps);
  view.text = (value) => `step ${Math.round(value).toLocaleString("en")}`;
  document.getElementById("page").replaceChildren(
    el("h1", {id: "verdict"}, found.verdict),
    el("p", {class: "mono"}, found.folder),
    el("p", {}, download(`${found.folder}.json`, JSON.stringify(found, null, 2))),
    found.deadline ? plans(found.deadline) : "",
    section("Over the steps", zoomTools(view), found.charts.map((chart) => lineChart(chart, view)),
      found.notes.map((note) => el("p", {class: "soft"}, note))),
    ...found.fits.map(epochs));
  document.documentElement.dataset.ready = "yes";
});
