// Event time: how far each source partition is, which one holds the others back, and how far each step is.
import { html, Ago, Badge, duration, href, Loaded, number, Panel, Table, timestamp, useMemo, useResource, useState } from "../lib.js";

const SHOWN = 25;
// Partitions that differ by less are read side by side: nothing holds anything back.
const APART_MS = 10_000;
const DATE_MS_MAX = 8.64e15;

/** A moment of event time: records may have times that no calendar has. */
function Moment({ ms }) {
  if (ms === null || ms === undefined) return html`<span class="muted">none yet</span>`;
  return Math.abs(ms) > DATE_MS_MAX ? `${number(ms)} ms` : html`<${Ago} ms=${ms} />`;
}

const absolute = (ms) => (Math.abs(ms) > DATE_MS_MAX ? `${number(ms)} ms` : timestamp(ms));
const nameOf = (one) => `${one.topic}[${one.partition}]`;
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** Sorts partitions as they matter: what holds back, then the lowest watermark, idle ones last. */
function order(rows) {
  const rank = (one) => (one.idle ? 2 : one.holds_back ? 0 : 1);
  const mark = (one) => one.watermark_ms ?? -Infinity;
  const byMark = (one, other) => (mark(one) === mark(other) ? one.partition - other.partition : mark(one) - mark(other));
  return [...rows].sort((one, other) => rank(one) - rank(other) || byMark(one, other));
}

/** The newest watermark, the partition that is waited for, and how far it is behind the next one. */
function judge(rows) {
  const active = rows.filter((one) => !one.idle);
  const marks = active.map((one) => one.watermark_ms).filter((ms) => ms !== null);
  const newest = marks.length ? Math.max(...marks) : null;
  const holder = active.find((one) => one.holds_back) ?? null;
  const others = active.filter((one) => one !== holder && one.watermark_ms !== null).map((one) => one.watermark_ms);
  const gap = holder === null || others.length === 0 ? 0 : Math.min(...others) - (holder.watermark_ms ?? -Infinity);
  return { active, newest, holder, gap };
}

const REMEDY = "check the lag and the producers of this partition, and `idle` under `watermark` of the source, which sets when a partition counts as idle";

/** A remedy as a sentence; what is between backticks is code. */
function Remedy({ text }) {
  const parts = `${text[0].toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`.split("`");
  return parts.map((part, at) => (at % 2 ? html`<code key=${at}>${part}</code>` : part));
}

function Held({ holder, gap, step, remedy }) {
  const stalled = step !== undefined && step.stalled_seconds !== null;
  const behind = holder.watermark_ms === null ? "has no watermark yet" : gap > 0 ? `is ${duration(gap / 1000)} behind all other partitions` : "has the lowest watermark";
  return html`<p><${Badge} kind=${stalled ? "bad" : "warn"} text=${stalled ? "Stalled" : "Held back"} />
      ${" "}<strong>${nameOf(holder)}</strong> ${behind}, and holds back the watermark of the source${stalled ? `, which has not advanced for ${duration(step.stalled_seconds)} although rows arrive` : ""}.</p>
    ${stalled || !holder.lag_records
      ? html`<p><span class="muted">Remedy: </span><${Remedy} text=${remedy ?? REMEDY} /></p>`
      : html`<p class="muted">It catches up as its lag of ${plural(holder.lag_records, "record")} is read.</p>`}`;
}

function Verdict({ rows, step, remedy }) {
  const { active, newest, holder, gap } = judge(rows);
  if (step?.on_hold) return html`<p><${Badge} kind="warn" text="On hold" /> for ${duration(step.on_hold_seconds)}, ${step.on_hold}.</p>`;
  if (holder !== null && ((step?.stalled_seconds ?? null) !== null || gap >= APART_MS)) return html`<${Held} holder=${holder} gap=${gap} step=${step} remedy=${remedy} />`;
  if (active.length === 0) return html`<p><${Badge} kind="idle" text="Idle" /> All partitions are idle, so this source does not hold back watermarks.</p>`;
  if (newest === null) return html`<p><${Badge} kind="idle" text="None yet" /> No partition has a watermark yet. The first record sets it.</p>`;
  const spread = newest - Math.min(...active.map((one) => one.watermark_ms ?? newest));
  const badge = spread < APART_MS ? html`<${Badge} kind="good" text="No skew" />` : html`<${Badge} kind="warn" text="Skew" />`;
  return html`<p>${badge} ${active.length === 1 ? "One partition is active." : `The watermarks of the ${number(active.length)} active partitions are within ${duration(spread / 1000)} of each other.`}</p>`;
}

function State({ one, apart }) {
  if (one.idle) return html`<${Badge} kind="idle" text="idle" />`;
  if (one.holds_back && apart) return html`<${Badge} kind="bad" text="holds back" />`;
  return html`<${Badge} kind="good" text="active" />`;
}

/** How far a partition is behind the newest one: a bar, and the same as a number. */
function Behind({ one, newest, widest, apart }) {
  if (one.watermark_ms === null || newest === null) return html`<span class="muted">–</span>`;
  const behind = Math.max(0, newest - one.watermark_ms);
  const kind = one.idle ? "idle" : one.holds_back && apart ? "bad" : "";
  return html`<div class="behind ${kind}">
    <span class="bar" aria-hidden="true"><span style=${{ width: `${one.idle ? 0 : Math.max(1, (100 * behind) / widest)}%` }}></span></span>
    <span>${behind === 0 ? "newest" : duration(behind / 1000)}</span>
  </div>`;
}

function Partitions({ rows, stalled }) {
  const [all, showAll] = useState(false);
  const { newest, gap } = judge(rows);
  const sorted = useMemo(() => order(rows), [rows]);
  const shown = all ? sorted : sorted.slice(0, SHOWN);
  const behind = rows.filter((one) => !one.idle && one.watermark_ms !== null).map((one) => (newest ?? 0) - one.watermark_ms);
  const widest = Math.max(APART_MS, ...behind);
  const apart = stalled || gap >= APART_MS;
  const columns = [
    { key: "partition", title: "Partition", render: nameOf },
    { key: "state", title: "State", render: (one) => html`<${State} one=${one} apart=${apart} />` },
    { key: "behind", title: "Behind the newest", render: (one) => html`<${Behind} one=${one} newest=${newest} widest=${widest} apart=${apart} />` },
    { key: "watermark", title: "Watermark", numeric: true, render: (one) => html`<${Moment} ms=${one.watermark_ms} />` },
    { key: "lag", title: "Lag in records", numeric: true, render: (one) => number(one.lag_records) },
    { key: "offset", title: "Next offset", numeric: true, render: (one) => number(one.offset) },
    { key: "slot", title: "Slot", numeric: true, render: (one) => number(one.slot) },
  ];
  return html`<${Table} columns=${columns} rows=${shown} row_key=${nameOf} label="Partitions" />
    ${sorted.length > SHOWN ? html`<p><button type="button" class="button" aria-expanded=${String(all)} onClick=${() => showAll(!all)}>${all ? `Show the first ${number(SHOWN)}` : `Show all ${number(sorted.length)} partitions`}</button></p>` : null}`;
}

function Source({ name, rows, step, remedy }) {
  const actions = html`${rows[0].cluster === "kafka" ? null : html`<span class="chip">${rows[0].cluster}</span>`}<span class="muted">${plural(rows.length, "partition")}</span>`;
  const watermark_ms = step?.watermark_ms ?? null;
  const timed = watermark_ms !== null || rows.some((one) => one.watermark_ms !== null);
  return html`<${Panel} title=${name} actions=${actions}>
    <div class="reached">
      <div class="summary">${timed || step?.on_hold
        ? html`<${Verdict} rows=${rows} step=${step} remedy=${remedy} />`
        : html`<p class="muted">No watermark: no record has arrived yet, or no step needs the event time of this source.</p>`}</div>
      ${timed ? html`<dl class="facts"><dt>Watermark</dt><dd>${watermark_ms === null ? "none yet" : absolute(watermark_ms)}</dd><dt>Behind the clock</dt><dd>${duration(step?.event_time_lag_seconds)}</dd></dl>` : null}
    </div>
    <${Partitions} rows=${rows} stalled=${(step?.stalled_seconds ?? null) !== null} />
  <//>`;
}

function Steps({ operators }) {
  const rows = operators.filter((one) => one.kind !== "source" && (one.watermark_ms !== null || one.late || one.waiting));
  const columns = [
    { key: "name", title: "Step", render: (one) => html`<a href=${href("graph", one.name)}>${one.name}</a>` },
    { key: "kind", title: "Kind", render: (one) => one.kind },
    { key: "watermark", title: "Watermark", numeric: true, render: (one) => html`<${Moment} ms=${one.watermark_ms} />` },
    { key: "lag", title: "Behind the clock", numeric: true, render: (one) => duration(one.event_time_lag_seconds) },
    { key: "late", title: "Late rows", numeric: true, render: (one) => number(one.late) },
    { key: "notes", title: "Notes", render: (one) => [one.idle ? "idle: does not hold back watermarks" : "", one.waiting].filter(Boolean).join("; ") },
  ];
  return html`<${Panel} title="Steps" actions=${html`<span class="muted">a step has the lowest watermark of its inputs</span>`}>
    <${Table} columns=${columns} rows=${rows} row_key="name" label="Steps" empty="No step has a watermark." />
  <//>`;
}

function Page() {
  const partitions = useResource("partitions", { every_s: 2 });
  const status = useResource("status");
  return html`<${Loaded} resource=${partitions}>${({ partitions: rows }) => {
    const sources = new Map();
    for (const one of rows) sources.set(one.source, [...(sources.get(one.source) ?? []), one]);
    const operators = status.data?.operators ?? [];
    const stepOf = (name) => operators.find((one) => one.name === name);
    const remedyOf = (name) => status.data?.diagnoses?.find((one) => one.code === "watermark-stalled" && one.step === name)?.remedy;
    if (sources.size === 0) return html`<${Panel} title="Sources"><p class="empty">No slot has reported a partition yet.</p><//>`;
    return html`${[...sources].map(([name, own]) => html`<${Source} key=${name} name=${name} rows=${own} step=${stepOf(name)} remedy=${remedyOf(name)} />`)}
      <${Steps} operators=${operators} />`;
  }}<//>`;
}

export default { name: "event-time", title: "Event time", Page };
