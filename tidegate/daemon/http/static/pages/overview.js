// Overview: whether the pipeline is well, and if not, why.
import { html, Ago, Badge, bytes, daemonNow, duration, href, Loaded, number, Panel, percent, Prose, rate, Sparkline, Table, useMemo, useResource } from "../lib.js";
import { Entry } from "./events.js";

const EVENTS_SHOWN = 6;
const SEVERITIES = { problem: ["bad", "Problem"], notice: ["warn", "Notice"] };
// States in which records do not flow, without anything being wrong.
const QUIET = {
  starting: "The process, Spark and the control server are starting.",
  restoring: "Transactions of the last attempt are being resolved, state and positions restored, and slots deployed.",
  stopping: "The final checkpoint is being taken.",
  finished: "The pipeline has completed or was stopped; the daemon is exiting.",
};

const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

// `stalled_seconds` -> "stalled: 4 min 12 s": units are the last part of a name.
function Evidence({ name, value }) {
  const formats = { seconds: duration, ms: (ms) => duration(ms / 1000), bytes, ratio: percent };
  const unit = name.slice(name.lastIndexOf("_") + 1);
  const format = typeof value === "number" ? formats[unit] : undefined;
  const words = (format ? name.slice(0, -unit.length - 1) : name).replaceAll("_", " ");
  return html`<dt>${words}</dt><dd>${format ? format(value) : typeof value === "number" ? number(value) : String(value)}</dd>`;
}

function Diagnosis({ diagnosis }) {
  const { code, severity, sentence, remedy, step, evidence } = diagnosis;
  const [kind, word] = SEVERITIES[severity] ?? SEVERITIES.notice;
  const facts = Object.entries(evidence);
  return html`<li class="diagnosis ${kind}">
    <p class="sentence"><${Badge} kind=${kind} text=${word} /> <${Prose} text=${sentence} /></p>
    ${remedy ? html`<p><span class="muted">Remedy: </span><${Prose} text=${remedy} /></p>` : null}
    <div class="more">
      ${facts.length ? html`<details><summary>Evidence</summary><dl class="facts">${facts.map(([name, value]) => html`<${Evidence} key=${name} name=${name} value=${value} />`)}</dl></details>` : null}
      ${step ? html`<a href=${href("graph", step)}>Step ${step}</a>` : null}
      <code class="muted">${code}</code>
    </div>
  </li>`;
}

function Calm({ state, stale }) {
  if (stale) return html`<p class="calm muted">No problem was known when the daemon last answered.</p>`;
  if (state === "running") return html`<p class="calm good">No problem found.</p>`;
  return QUIET[state] ? html`<p class="muted">${QUIET[state]}</p>` : null;
}

function Health({ status, stale }) {
  const { state, reason, diagnoses, attempt, restarts, uptime_seconds } = status;
  const facts = [
    `up for ${duration(Math.round(uptime_seconds))}`,
    attempt ? `attempt ${number(attempt)}` : null,
    restarts ? plural(restarts, "restart") : "no restart",
    status.failed_checkpoints ? `${plural(status.failed_checkpoints, "failed checkpoint")}` : null,
    status.bad_records ? `${plural(status.bad_records, "bad record")}` : null,
  ];
  const calm = diagnoses.length === 0;
  return html`<${Panel} title="Health" className="health ${calm ? "" : "ill"}" actions=${html`<span class="muted">${facts.filter(Boolean).join(" · ")}</span>`}>
    ${reason ? html`<p class="reason"><strong>${state}</strong>: <${Prose} text=${reason} /></p>` : null}
    ${calm
      ? html`<${Calm} state=${state} stale=${stale} />`
      : html`<ul class="diagnoses">${diagnoses.map((one) => html`<${Diagnosis} key=${`${one.code} ${one.step} ${one.slot} ${one.cluster}`} diagnosis=${one} />`)}</ul>`}
  <//>`;
}

function Tile({ title, value, note, values, format, label, at_ms }) {
  return html`<section class="tile">
    <h2>${title}</h2>
    <p class="value">${value}</p>
    <p class="note">${note}</p>
    <${Sparkline} values=${values} at_ms=${at_ms} label=${label ?? title} format=${format} />
  </section>`;
}

const newest = (values) => values?.findLast((value) => value !== null);

// Records are committed once per checkpoint, so the rate between two points says little.
const MINUTE_POINTS = 12;

function meanOfLastMinute(values) {
  return values?.map((value, at) => {
    const known = values.slice(Math.max(0, at + 1 - MINUTE_POINTS), at + 1).filter((one) => one !== null);
    return known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : null;
  });
}

function checkpointTile({ last_checkpoint: checkpoint }, completed_at_ms, values) {
  const tile = { title: "Newest checkpoint", label: "Duration of checkpoints", format: (ms) => duration(ms / 1000), values };
  if (checkpoint === null) return { ...tile, value: "none", note: "since this daemon started" };
  const note = html`<a href=${href("checkpoints", checkpoint.id)}>${checkpoint.id}</a> took ${duration(checkpoint.duration_seconds)}`;
  return { ...tile, value: html`<${Ago} ms=${completed_at_ms} />`, note };
}

function outputTile(status, series) {
  const total = (count) => `${number(count)} in total`;
  if (status.guarantee !== "exactly-once")
    return { title: "Records written", value: rate(status.records_out_per_second), note: total(status.records_out), values: series?.records_out_per_second, format: rate };
  const values = meanOfLastMinute(series?.records_committed_per_second);
  return { title: "Records committed", value: rate(newest(values)), note: total(status.records_committed), values, label: "Records committed, mean of a minute", format: rate };
}

function Tiles({ status, history }) {
  const series = history?.pipeline;
  const open = status.oldest_transaction_seconds;
  const completed_at_ms = useMemo(() => daemonNow() - (status.last_checkpoint?.age_seconds ?? 0) * 1000, [status]);
  const behind = status.lag_seconds === null ? "records" : `records, ${duration(status.lag_seconds)} behind`;
  const tiles = [
    { title: "Records read", value: rate(status.records_in_per_second), note: `${number(status.records_in)} in total`, values: series?.records_in_per_second, format: rate },
    outputTile(status, series),
    { title: "Lag", value: number(status.lag_records), note: status.lag_records === null ? "not measured yet" : behind, values: series?.lag_records },
    checkpointTile(status, completed_at_ms, series?.checkpoint_ms),
    { title: "Oldest transaction", value: open === null ? "none" : duration(open), note: open === null ? "no open transaction" : "until the next checkpoint", values: series?.oldest_transaction_seconds, format: duration },
    { title: "State", value: bytes(newest(series?.state_bytes)), note: "in the newest checkpoint", values: series?.state_bytes, format: bytes },
  ];
  return html`<div class="tiles six">${tiles.map((tile) => html`<${Tile} key=${tile.title} at_ms=${history?.at_ms} ...${tile} />`)}</div>`;
}

function notes(step) {
  const found = [];
  if (step.on_hold) found.push(["warn", `on hold for ${duration(step.on_hold_seconds)}: ${step.on_hold}`]);
  if (step.stalled_seconds !== null) found.push(["warn", `watermark has not advanced for ${duration(step.stalled_seconds)}${step.held_back_by ? `: held back by ${step.held_back_by}` : ""}`]);
  if (step.idle) found.push(["idle", "idle: does not hold back watermarks"]);
  if (step.failed) found.push(["bad", `${plural(step.failed, "bad record")}`]);
  if (step.late) found.push(["warn", `${plural(step.late, "late row")}`]);
  if (step.before_1971) found.push(["warn", `${plural(step.before_1971, "event time")} before 1971`]);
  return found;
}

function Step({ step }) {
  const found = notes(step);
  return html`<a href=${href("graph", step.name)}>${step.name}</a>
    ${found.length ? html`<ul class="notes">${found.map(([kind, text]) => html`<li key=${text} class=${kind}>${text}</li>`)}</ul>` : null}`;
}

const render = (step) => html`<${Step} step=${step} />`;
const SOURCE_COLUMNS = [
  { key: "name", title: "Source", render },
  { key: "rate", title: "Read", numeric: true, render: (step) => rate(step.rows_in_per_second) },
  { key: "total", title: "In total", numeric: true, render: (step) => number(step.rows_in) },
  { key: "event", title: "Event time", numeric: true, render: (step) => (step.event_time_lag_seconds === null ? "–" : `${duration(step.event_time_lag_seconds)} behind`) },
];
const SINK_COLUMNS = [
  { key: "name", title: "Sink", render },
  { key: "rate", title: "Written", numeric: true, render: (step) => rate(step.rows_out_per_second) },
  { key: "total", title: "In total", numeric: true, render: (step) => number(step.rows_out) },
  { key: "busy", title: "Busy", numeric: true, render: (step) => percent(step.busy_ratio) },
];

function Ends({ status }) {
  const of = (kind) => status.operators.filter((one) => one.kind === kind);
  return html`<div class="columns">
    <${Panel} title="Sources" actions=${html`<a href=${href("event-time")}>Partitions</a>`}><${Table} columns=${SOURCE_COLUMNS} rows=${of("source")} row_key="name" label="Sources" empty="No source has been reported yet." /><//>
    <${Panel} title="Sinks"><${Table} columns=${SINK_COLUMNS} rows=${of("sink")} row_key="name" label="Sinks" empty="No sink has been reported yet." /><//>
  </div>`;
}

function Newest() {
  const resource = useResource("events", { every_s: 2 });
  return html`<${Panel} title="Newest events" actions=${html`<a href=${href("events")}>All events</a>`}>
    <${Loaded} resource=${resource}>${({ events }) => events.length === 0
      ? html`<p class="empty">No events yet.</p>`
      : html`<ol class="events">${events.slice(0, EVENTS_SHOWN).map((event) => html`<${Entry} key=${`${event.at_ms} ${event.text}`} event=${event} />`)}</ol>`}<//>
  <//>`;
}

function Page() {
  const status = useResource("status");
  const history = useResource("history", { every_s: 5 });
  return html`<${Loaded} resource=${status}>${(data) => html`
    <${Health} status=${data} stale=${status.stale_s !== null} />
    <${Tiles} status=${data} history=${history.data} />
    <${Ends} status=${data} />
    <${Newest} />`}<//>`;
}

export default { name: "overview", title: "Overview", Page };
