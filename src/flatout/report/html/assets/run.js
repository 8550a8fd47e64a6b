"use strict";
shown(async () => {
  const {report, steps, series, lanes, names, notes, span, classes, confidence} = await data();
  const main = document.getElementById("page"), ledger = report.ledger;
  const most = Math.max(2, ...report.remedies.map((one) => one.gain.high || 1), ...report.plans.map((one) => one.gain.high || 1));
  const parts = [
    el("h1", {id: "verdict"}, report.verdict),
    report.run.failure ? el("p", {class: "warning", role: "alert", id: "failure"}, `! ${report.run.failure}`) : null,
    el("p", {class: "mono"}, shellLine(report.run.command)),
    el("p", {class: "soft"}, `${report.run.id} · ${report.machine}`),
    el("p", {}, download(`${report.run.id}.json`, JSON.stringify(report, null, 2))),
  ];
  if (ledger) {
    const rows = [...ledger.accounts];
    if (ledger.unaccounted_s > 0.0005 * ledger.window_s) rows.push({id: "unaccounted", label: "unaccounted", seconds: ledger.unaccounted_s, share: ledger.unaccounted_s / ledger.window_s});
    parts.push(section("Where the time went",
      el("p", {class: "soft"}, `${ledger.steps.count} steps in ${seconds(ledger.window_s)}; ${ledger.steps.rate_sps ? rate(ledger.steps.rate_sps) + " samples/s" + (ledger.steps.processes > 1 ? " in this process" : "") : "samples/s: not measured, because the samples of a step are not known"}; a step takes ${seconds(ledger.steps.median_s)} in the median`),
      icicle(rows, ledger.window_s),
      el("details", {}, el("summary", {}, "As a table, with the lines of code"), table(["account", "#share", "#time", "lines"], accountRows(rows, 0)))));
  }
  if (report.causes.length) parts.push(section("What holds it back",
    el("p", {class: "soft"}, "The share is what removing this cause alone would give back of the time."),
    report.causes.map((cause) => el("article", {"data-cause": cause.id},
      el("h3", {}, `${cause.title} · ${percent(cause.share)}`), bar(cause.share),
      el("p", {class: "soft"}, `${cause.id}, ${confidence[cause.id]}${cause.hidden_by ? `; look at ${cause.hidden_by} first` : ""}`),
      list(cause.evidence.map((one) => one.text))))));
  const titles = Object.fromEntries(report.remedies.map((one) => [one.id, one.title]));
  if (report.remedies.length) parts.push(section("What to do",
    el("p", {class: "soft"}, "Gains in samples/s are predicted, not yet measured; the thin line at 1x is no change."),
    table(["remedy", "#predicted", "interval", "class", "risk", "#memory"], report.remedies.map((one) => [
      [el("div", {}, one.title), el("code", {}, one.how), el("div", {class: "soft"}, one.basis), titles[one.adds_nothing_to] ? el("div", {}, `Predicted to add nothing to: ${titles[one.adds_nothing_to]}.`) : null],
      `${factor(one.gain.predicted)} (${factor(one.gain.low)}–${factor(one.gain.high)})`, interval(one.gain, most), one.class, one.risk, bytes(one.memory_bytes)]), true),
    classLegend(classes, report.remedies.map((one) => one.class))));
  if (report.plans.length) parts.push(section("Plans", el("p", {class: "soft"}, "Remedies together, predicted for all of them: the conservative plan takes those of low risk that change no result, the moderate one also those of medium risk and those that change rounding, the aggressive one all."), table(["plan", "#predicted", "interval", "remedies"], report.plans.map((one) => [
    one.name, `${factor(one.gain.predicted)} (${factor(one.gain.low)}–${factor(one.gain.high)})`, interval(one.gain, most), list(one.remedies)]), true)));
  if (report.findings.length) parts.push(section("Risks and opportunities", report.findings.map((one) => el("article", {}, el("h3", {}, one.title), el("p", {}, one.how), list(one.evidence.map((each) => each.text))))));
  if (lanes.length) {
    const view = new View(...span), slow = [];
    if (steps) steps.start.forEach((start, row) => { if (steps.slow[row]) slow.push([start, start + steps.length[row]]); });
    parts.push(section("Over time", lanes.length ? laneChart(lanes, names, view, slow) : null, steps ? stepChart(steps, view) : null, series.length ? seriesChart(series, view) : null,
      notes.map((note) => el("p", {class: "soft"}, note))));
  }
  if (!lanes.length) parts.push(...notes.map((note) => el("p", {class: "soft"}, note)));
  if (ledger && ledger.epochs.length > 1) parts.push(section("Epochs", table(["epoch", "#time", "#steps", "#samples/s", "data"], ledger.epochs.map((one) => [
    one.index + 1, seconds(one.seconds), one.steps, one.seconds > 0 && one.samples > 0 ? rate(one.samples / one.seconds) : "–",
    (!one.reads_data ? "no reads" : one.cold === null ? "not measured" : one.cold ? "cold: read from storage" : "warm: in memory") + (one.complete ? "" : ", not complete")]))));
  if (report.not_measured.length) parts.push(section("Not measured", list(report.not_measured.map((one) => `${one.id}: not measured, because ${one.because}`))));
  const problems = report.problems.filter((one) => one !== report.run.failure);
  if (problems.length) parts.push(section("Problems of the record", list(problems)));
  if (ledger && ledger.notes.length) parts.push(section("Notes", list(ledger.notes)));
  parts.push(section("Next", el("p", {class: "mono"}, report.next_command)));
  main.replaceChildren(...parts.filter(Boolean));
  document.documentElement.dataset.ready = "yes";
});
