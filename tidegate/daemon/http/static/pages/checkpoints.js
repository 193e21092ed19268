// Checkpoints: the last hundred as bars, and of one of them what each subtask did when, on one time axis.
import {
  html, Ago, Badge, bytes, duration, href, Loaded, number, Panel, percent, Table, useEffect, useMemo, useRef, useResource, useState,
} from "../lib.js";

const RESULTS = { "under way": "idle", completed: "good", failed: "bad", abandoned: "warn" };
const PHASES = [
  ["start_delay_ms", "start delay", "until the first barrier arrived, behind the records before it"],
  ["alignment_ms", "alignment", "until the barriers of all inputs had arrived"],
  ["snapshot_ms", "snapshot", "the synchronous part, in which no record is processed"],
  ["upload_ms", "upload", "writing state to the checkpoint storage"],
  ["prepare_ms", "prepare", "sinks: everything is flushed and counted, during the upload"],
];
const ROWS_SHOWN = 20;

const ms = (value) => (value === null ? "–" : duration(value / 1000));
const nameOf = (one) => `${one.vertex}[${one.slot}]`;
const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

// -- the bars ---------------------------------------------------------------------------------------------------------

function describe(one) {
  const took = one.duration_ms === null ? "" : `, ${ms(one.duration_ms)}`;
  return `${one.kind} ${one.id}, ${one.result}${took}`;
}

// A failed checkpoint ends with a timeout that would make all others look short, so completed ones set the scale.
function scaleOf(records) {
  const times = records.filter((one) => one.result === "completed").map((one) => one.duration_ms);
  return Math.max(1, ...times);
}

const HEIGHTS = { failed: 1, abandoned: 0.12, "under way": 0.12 };
const heightOf = (one, most) => HEIGHTS[one.result] ?? one.duration_ms / most;
const MARKS = { savepoint: "S", final: "F" };

/** Bars, oldest first. One of them is a stop of the Tab key; arrow keys, Home and End choose another one. */
function Bars({ records, chosen }) {
  const list = useRef(null);
  const follow = useRef(true);
  const ordered = useMemo(() => [...records].reverse(), [records]);
  const most = scaleOf(records);
  const stop = ordered.some((one) => one.id === chosen) ? chosen : ordered.at(-1)?.id;
  useEffect(() => {
    if (follow.current && list.current) list.current.scrollLeft = list.current.scrollWidth;
  }, [ordered.at(-1)?.id]);
  const go = (at) => {
    const one = ordered[Math.max(0, Math.min(ordered.length - 1, at))];
    location.hash = href("checkpoints", one.id);
    list.current.querySelector(`[data-id="${one.id}"]`)?.focus();
  };
  const press = (event, at) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: ordered.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(to);
  };
  const scrolled = ({ currentTarget: box }) => {
    follow.current = box.scrollLeft + box.clientWidth >= box.scrollWidth - 4;
  };
  return html`<div class="checkpoint-bars">
    <div class="scale" aria-hidden="true"><span>${ms(most)}</span><span>${ms(most / 2)}</span><span>0</span></div>
    <ol ref=${list} onScroll=${scrolled} aria-label="Checkpoints by duration, oldest first">
      ${ordered.map((one, at) => html`<li key=${one.id}>
        <a href=${href("checkpoints", one.id)} data-id=${one.id} class=${one.result.replace(" ", "-")} aria-label=${describe(one)} title=${describe(one)}
          aria-current=${one.id === chosen ? "true" : undefined} tabindex=${one.id === stop ? 0 : -1} onKeyDown=${(event) => press(event, at)}>
          <span class="mark">${one.result === "failed" ? "×" : MARKS[one.kind] ?? ""}</span>
          <span class="height" style=${{ height: `calc((100% - 1.5rem) * ${heightOf(one, most)})` }}></span>
        </a>
      </li>`)}
    </ol>
  </div>`;
}

function Legend() {
  return html`<ul class="checkpoint-legend">
    <li><span class="sample completed"></span>completed</li>
    <li><span class="sample failed"></span>× failed</li>
    <li><span class="sample abandoned"></span>abandoned</li>
    <li><span class="sample under-way"></span>under way</li>
    <li><strong>S</strong> savepoint</li>
    <li><strong>F</strong> final</li>
  </ul>`;
}

function Summary({ records }) {
  const of = (result) => records.filter((one) => one.result === result).length;
  const times = records.filter((one) => one.result === "completed").map((one) => one.duration_ms).sort((a, b) => a - b);
  const middle = times.length ? `, median ${ms(times[Math.floor((times.length - 1) / 2)])}, slowest ${ms(times.at(-1))}` : "";
  const others = ["failed", "abandoned", "under way"].filter(of).map((result) => `${number(of(result))} ${result}`);
  return html`<p>${number(of("completed"))} completed${middle}${others.length ? `; ${others.join(", ")}` : ""}.</p>`;
}

// -- one checkpoint ---------------------------------------------------------------------------------------------------

/** Returns the phase that took longest, and its milliseconds. */
function longestPhase(one) {
  return PHASES.map(([key, title]) => [title, one[key]]).reduce((most, next) => (next[1] > most[1] ? next : most));
}

function Verdict({ record }) {
  const slowest = record.subtasks.at(-1);
  const sentences = [];
  if (record.missing.length) {
    const named = record.missing.slice(0, 5).join(", ");
    const all = record.missing.length + record.subtasks.length + record.subtasks_left_out;
    sentences.push(`${number(record.missing.length)} of ${count(all, "subtask")} ${record.result === "under way" ? "have" : "had"} not acknowledged it: ${named}${record.missing.length > 5 ? " and others" : ""}.`);
  }
  if (slowest) {
    const [phase, took] = longestPhase(slowest);
    const share = slowest.acknowledged_after_ms ? ` (${percent(Math.min(1, took / slowest.acknowledged_after_ms))})` : "";
    sentences.push(`${nameOf(slowest)} ${record.missing.length ? "was the last to acknowledge" : "was the slowest"}, after ${ms(slowest.acknowledged_after_ms)}, of which ${ms(took)}${share} were ${phase}.`);
  }
  if (record.subtasks_left_out) sentences.push(`The phases of ${count(record.subtasks_left_out, "subtask")} are no longer available.`);
  return sentences.length ? html`<p class="verdict">${sentences.join(" ")}</p>` : null;
}

function Facts({ record }) {
  const parts = [["acknowledged", record.acknowledged_ms], ["journal", record.journal_ms], ["commit", record.commit_ms]];
  const known = parts.filter(([, took]) => took !== null).map(([title, took]) => `${title} ${ms(took)}`);
  const inflight = record.subtasks.reduce((sum, one) => sum + one.inflight_bytes, 0);
  const written = record.subtasks.reduce((sum, one) => sum + one.written_bytes, 0);
  return html`<dl class="facts">
    <dt>Result</dt><dd><${Badge} kind=${RESULTS[record.result]} text=${record.result} />${record.reason ? html` <span>${record.reason}</span>` : null}</dd>
    <dt>Triggered</dt><dd><${Ago} ms=${record.triggered_at_ms} />, attempt ${record.attempt}</dd>
    <dt>Duration</dt><dd>${record.duration_ms === null ? "still under way" : ms(record.duration_ms)}${known.length ? html` <span class="muted">(${known.join(", ")})</span>` : null}</dd>
    <dt>State</dt><dd>${bytes(record.size_bytes)}${record.subtasks.length ? html` <span class="muted">(${bytes(written)} written by this checkpoint${inflight ? `, ${bytes(inflight)} rows in flight` : ""})</span>` : null}</dd>
    <dt>Committed</dt><dd>${count(record.records, "record")}</dd>
  </dl>`;
}

// -- the Gantt chart --------------------------------------------------------------------------------------------------

/** Returns the bars of a subtask: class, start, width, and lane (0 whole, 1 upper, 2 lower half), in milliseconds. */
function barsOf(one) {
  const { start_delay_ms: delay, alignment_ms: alignment, snapshot_ms: snapshot, upload_ms: upload, prepare_ms: prepare } = one;
  const after = delay + alignment + snapshot;
  const both = upload > 0 && prepare > 0;
  return [
    ["start-delay", 0, delay, 0], ["alignment", delay, alignment, 0], ["snapshot", delay + alignment, snapshot, 0],
    ["upload", after, upload, both ? 1 : 0], ["prepare", after, prepare, both ? 2 : 0],
  ].filter(([, , width]) => width > 0);
}

const endOf = (one) => Math.max(one.acknowledged_after_ms, one.start_delay_ms + one.alignment_ms + one.snapshot_ms + Math.max(one.upload_ms, one.prepare_ms));

/** Returns the distance of the ticks: 1, 2 or 5 times a power of ten, at most five of them. */
function tickOf(most_ms) {
  const power = 10 ** Math.floor(Math.log10(most_ms / 5));
  return power * [1, 2, 5, 10].find((step) => (most_ms / 5) <= step * power);
}

function Axis({ most }) {
  const tick = tickOf(most);
  const ticks = Array.from({ length: Math.floor(most / tick) + 1 }, (_, at) => at * tick).filter((at) => at < most * 0.93);
  return html`<span class="axis" aria-hidden="true">${ticks.map((at) => html`<span key=${at} style=${{ left: `${(100 * at) / most}%` }}>${ms(at)}</span>`)}</span>`;
}

function Timeline({ one, most }) {
  const text = PHASES.filter(([key]) => one[key] > 0).map(([key, title]) => `${title} ${ms(one[key])}`).join(", ");
  return html`<span class="timeline" title=${text}>
    <span class="hidden">${text}</span>
    ${barsOf(one).map(([phase, start, width, lane]) => html`<span key=${phase} class="phase ${phase} lane-${lane}" style=${{ left: `${(100 * start) / most}%`, width: `${(100 * width) / most}%` }}></span>`)}
    <span class="acknowledged" style=${{ left: `${(100 * one.acknowledged_after_ms) / most}%` }}></span>
  </span>`;
}

const NUMBERS = PHASES.map(([key, title]) => ({ key, title, numeric: true, render: (one) => (one.absent ? "–" : ms(one[key])) }));
const SIZES = [
  { key: "size_bytes", title: "state", numeric: true, render: (one) => (one.absent ? "–" : bytes(one.size_bytes)) },
  { key: "written_bytes", title: "written", numeric: true, render: (one) => (one.absent ? "–" : bytes(one.written_bytes)) },
  { key: "inflight_bytes", title: "in flight", numeric: true, render: (one) => (one.absent ? "–" : one.inflight_rows ? `${bytes(one.inflight_bytes)}, ${count(one.inflight_rows, "row")}` : "none") },
];

function Gantt({ record }) {
  const [numbers, setNumbers] = useState(false);
  const [vertex, setVertex] = useState("");
  const [all, setAll] = useState(false);
  const vertices = useMemo(() => [...new Set([...record.subtasks.map((one) => one.vertex), ...record.missing.map((name) => name.replace(/\[\d+\]$/, ""))])].sort(), [record]);
  const absent = record.missing.map((name) => ({ absent: true, name, vertex: name.replace(/\[\d+\]$/, "") }));
  const slowest = [...record.subtasks].reverse().map((one) => ({ ...one, name: nameOf(one) }));
  const rows = [...absent, ...slowest].filter((one) => !vertex || one.vertex === vertex);
  const shown = all ? rows : rows.slice(0, ROWS_SHOWN);
  const most = Math.max(1, ...record.subtasks.map(endOf)) * 1.02;
  const timeline = {
    key: "timeline",
    title: html`<span class="hidden">phases</span><${Axis} most=${most} />`,
    render: (one) => (one.absent ? html`<span class="timeline"><span class="absent">missing</span></span>` : html`<${Timeline} one=${one} most=${most} />`),
  };
  const columns = [
    { key: "name", title: "Subtask" },
    ...(numbers ? NUMBERS : [timeline]),
    { key: "acknowledged_after_ms", title: "acknowledged", numeric: true, render: (one) => (one.absent ? html`<${Badge} kind="bad" text="missing" />` : `after ${ms(one.acknowledged_after_ms)}`) },
    ...SIZES,
  ];
  const tools = html`
    ${vertices.length > 1 ? html`<label>Step <select value=${vertex} onChange=${(event) => setVertex(event.target.value)}>
      <option value="">all</option>${vertices.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
    </select></label>` : null}
    <button type="button" class="button" aria-pressed=${String(numbers)} onClick=${() => setNumbers(!numbers)}>Show numbers</button>`;
  return html`<${Panel} title="Subtasks, slowest first" actions=${tools} className="gantt">
    ${numbers ? null : html`<ul class="checkpoint-legend">${PHASES.map(([key, title, what]) => html`<li key=${key} title=${what}><span class="phase ${title.replace(" ", "-")}"></span>${title}</li>`)}<li><span class="acknowledged"></span>acknowledgement arrived</li></ul>`}
    <${Table} label="Subtasks" columns=${columns} rows=${shown} row_key="name" empty="No subtask has acknowledged it yet." />
    ${rows.length > ROWS_SHOWN ? html`<p><button type="button" class="button" onClick=${() => setAll(!all)}>${all ? `Show the first ${ROWS_SHOWN}` : `Show all ${number(rows.length)}`}</button></p>` : null}
  <//>`;
}

const TITLES = { checkpoint: "Checkpoint", final: "Final checkpoint", savepoint: "Savepoint" };

function One({ record, newest }) {
  // An answer that has not changed is the same object, and hundreds of rows are not rendered again.
  const gantt = useMemo(() => html`<${Gantt} key=${record.id} record=${record} />`, [record]);
  const follow = newest
    ? html`<span class="muted">follows the newest one that has ended</span> <a href=${href("checkpoints", record.id)}>Stay at this one</a>`
    : html`<a href=${href("checkpoints")}>Follow the newest</a>`;
  return html`
    <${Panel} title=${`${TITLES[record.kind]} ${record.id}`} className="checkpoint" actions=${follow}>
      <${Verdict} record=${record} />
      <${Facts} record=${record} />
    <//>
    ${gantt}`;
}

function Detail({ id, newest }) {
  const resource = useResource(`checkpoints?id=${id}`);
  return html`<${Loaded} resource=${resource}>${([record]) => html`<${One} record=${record} newest=${newest} />`}<//>`;
}

function All({ records, chosen }) {
  return useMemo(() => html`<${Panel} title=${`Newest ${number(records.length)}`}>
    <${Summary} records=${records} />
    <${Bars} records=${records} chosen=${chosen} />
    <${Legend} />
  <//>`, [records, chosen]);
}

function Page({ parts }) {
  const resource = useResource("checkpoints?subtasks=false");
  return html`<${Loaded} resource=${resource}>${(records) => {
    if (records.length === 0) return html`<p class="empty">This daemon has not taken a checkpoint yet.</p>`;
    const newest = (records.find((one) => one.result !== "under way") ?? records[0]).id;
    const chosen = /^\d+$/.test(parts[0] ?? "") ? Number(parts[0]) : newest;
    return html`<${All} records=${records} chosen=${chosen} />
      <${Detail} key=${parts.length ? chosen : "newest"} id=${chosen} newest=${parts.length === 0} />`;
  }}<//>`;
}

export default { name: "checkpoints", title: "Checkpoints", Page };
