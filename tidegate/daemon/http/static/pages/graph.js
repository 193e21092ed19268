// Graph: the steps of the plan as they work now. Choosing one shows its subtasks, its history and rows of its output.
import { html, Badge, Loaded, NONE, Panel, Sparkline, Table, duration, href, number, percent, rate, timestamp, useEffect, useMemo, useRef, useResource, useState } from "../lib.js";
import { TapPanel } from "./tap.js";

const UNIT = 16; // pixels of the layout in one rem, so that the picture grows with the text
const WINDOW_S = 6;
const BUSY = 0.8, BLOCKED = 0.5;
const SCALE_READABLE = 0.58, SCALE_MIN = 0.2;
const DEAD = "dead";
const INPUTS_SHOWN = 3;
const FOLD_PX = 120;
const rem = (pixels) => `${pixels / UNIT}rem`;

// -- figures ----------------------------------------------------------------------------------------------------------

/** Returns the status of some seconds ago, against which counts of now are compared; null until there is one. */
function useEarlier(status) {
  const kept = useRef([]);
  if (status !== null && kept.current.at(-1) !== status) {
    if (kept.current.at(-1)?.uptime_seconds > status.uptime_seconds) kept.current = []; // another daemon
    kept.current.push(status);
    while (kept.current.length > 2 && kept.current[1].uptime_seconds <= status.uptime_seconds - WINDOW_S) kept.current.shift();
  }
  return kept.current.length > 1 ? kept.current[0] : null;
}

/** Returns the difference of a count per second; null if it is not known or was counted anew. */
function perSecond(now, before, seconds) {
  if (before === undefined || seconds <= 0 || now < before) return null;
  return (now - before) / seconds;
}

/** Returns `{name: {...operator, blocked_ratio}}` for all operators of a status. */
function operatorsOf(status, earlier) {
  const before = new Map((earlier?.operators ?? []).map((one) => [one.name, one]));
  const seconds = earlier === null ? 0 : status.uptime_seconds - earlier.uptime_seconds;
  return new Map(status.operators.map((one) => {
    const blocked = perSecond(one.blocked_seconds, before.get(one.name)?.blocked_seconds, seconds);
    return [one.name, { ...one, blocked_ratio: blocked === null ? null : Math.min(1, blocked / Math.max(1, one.subtasks.length)) }];
  }));
}

/** Returns the state of an operator as a kind of badge and a text. */
function stateOf(operator) {
  if (operator === undefined) return { kind: "idle", text: "not started" };
  if (operator.stalled_seconds !== null) return { kind: "bad", text: `stalled ${duration(operator.stalled_seconds)}` };
  if (operator.on_hold) return { kind: "warn", text: "on hold" };
  if (operator.blocked_ratio >= BLOCKED) return { kind: "warn", text: `blocked ${percent(operator.blocked_ratio)}` };
  if (operator.busy_ratio >= BUSY) return { kind: "bad", text: `busy ${percent(operator.busy_ratio)}` };
  if (!operator.rows_in_per_second && !operator.rows_out_per_second) return { kind: "idle", text: "idle" };
  return { kind: "good", text: `busy ${percent(operator.busy_ratio)}` };
}

/** Formats a count for a box that has no room for all its digits: `46K`. */
const short = (value) => value.toLocaleString("en-US", { notation: "compact" });

/** Returns what is worth a look at an operator, in a few words each: as it is shown, and with all digits. */
function notesOf(operator) {
  if (operator === undefined) return [];
  const { failed, late, gauges: { waiting_rows } } = operator;
  return [
    failed > 0 && { bad: true, count: failed, word: "failed" },
    late > 0 && { count: late, word: "late" },
    waiting_rows > 0 && { count: waiting_rows, word: "waiting" },
  ].filter(Boolean).map((note) => ({ ...note, text: `${short(note.count)} ${note.word}`, title: `${number(note.count)} ${note.word}` }));
}

// -- picture ----------------------------------------------------------------------------------------------------------

/** Returns a path through the points; where it changes its height it bends softly, inside the gap. */
function pathOf(points) {
  return points.map(([x, y], at) => {
    if (at === 0) return `M${x} ${y}`;
    const [from_x, from_y] = points[at - 1];
    const middle = (from_x + x) / 2;
    return from_y === y ? `H${x}` : `C${middle} ${from_y} ${middle} ${y} ${x} ${y}`;
  }).join("");
}

function Lines({ layout, chosen }) {
  const classOf = (edge) => [
    edge.output === DEAD ? "dead" : edge.exchanged ? "exchanged" : "",
    edge.output ? "side" : "",
    edge.from === chosen || edge.to === chosen ? "near" : "",
  ].join(" ");
  return html`<svg viewBox="0 0 ${layout.width} ${layout.height}" aria-hidden="true">
    <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8Z" /></marker></defs>
    ${layout.vertices.map((one) => html`<rect key=${one.name} x=${one.x} y=${one.y} width=${one.width} height=${one.height} rx="8" />`)}
    ${layout.edges.map((edge) => html`<path key=${`${edge.from} ${edge.to} ${edge.port} ${edge.output}`} class=${classOf(edge)} d=${pathOf(edge.points)} marker-end="url(#arrow)" />`)}
  </svg>`;
}

function Step({ place, step, operator, chosen }) {
  const { kind, text } = stateOf(operator);
  const notes = notesOf(operator);
  const lag = operator?.event_time_lag_seconds ?? null;
  const inputs = [...new Set(step.inputs.map((one) => one.from))];
  const item = useRef(null);
  useEffect(() => chosen && item.current.scrollIntoView({ block: "nearest", inline: "nearest" }), [chosen]);
  return html`<li class="step ${kind}" ref=${item} style=${{ left: rem(place.x), top: rem(place.y), width: rem(place.width), height: rem(place.height) }}>
    <a href=${href("graph", step.name)} aria-current=${chosen ? "true" : undefined} title=${step.name}>
      <strong>${step.name}</strong>
      <span class="muted kind"><span>${step.kind}</span>${lag === null ? null : html`<span title="how far its watermark is behind the clock">lag ${duration(Math.max(0, lag))}</span>`}</span>
      ${inputs.length ? html`<span class="from muted">from ${inputs.slice(0, INPUTS_SHOWN).join(", ")}${inputs.length > INPUTS_SHOWN ? ` and ${inputs.length - INPUTS_SHOWN} more` : ""}</span>` : null}
      <span class="rates">${operator === undefined ? NONE : html`<span title="rows in">${rate(operator.rows_in_per_second)}</span><span>→</span><span title="rows out">${rate(operator.rows_out_per_second)}</span>`}</span>
      <span class="state ${kind}">${text}</span>
      ${notes.length ? html`<span class="marks" title=${notes.map((note) => note.title).join(", ")}>${notes.map((note) => html`<span key=${note.word} class=${note.bad ? "bad" : "muted"}>${note.text}</span>`)}</span>` : null}
      <span class="load" aria-hidden="true"><span style=${{ width: `${100 * Math.min(1, operator?.busy_ratio ?? 0)}%` }}></span></span>
    </a>
  </li>`;
}

function Picture({ plan, operators, chosen }) {
  const { layout } = plan;
  const box = useRef(null);
  const [other, setOther] = useState(false);
  const [room, setRoom] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setRoom(entry.contentRect.width));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const size = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const fit = room === 0 ? 1 : room / ((layout.width / UNIT) * size); // its room is not known at first
  // Shown as a whole if it can be read then. The other choice is its full size, or the whole of a large picture.
  const readable = Math.min(1, Math.max(SCALE_READABLE, fit));
  const scale = !other ? readable : fit < SCALE_READABLE ? Math.max(SCALE_MIN, fit) : 1;
  const places = useMemo(() => new Map(layout.nodes.map((one) => [one.step, one])), [layout]);
  const actions = html`
    ${fit < 1 ? html`<button type="button" class="button wide" aria-pressed=${String(other)} onClick=${() => setOther(!other)}>${fit < SCALE_READABLE ? "Whole graph" : "Actual size"}</button>` : null}
    <${Legend} />`;
  return html`<${Panel} title="Steps" className="graph" actions=${actions}>
    <div class="scroll" role="region" tabindex="0" aria-label="Steps of the plan" ref=${box}>
      <div class="frame" style=${{ "--width": rem(layout.width * scale), "--height": rem(layout.height * scale) }}>
        <div class="picture" style=${{ "--width": rem(layout.width), "--height": rem(layout.height), "--scale": scale }}>
          <${Lines} layout=${layout} chosen=${chosen} />
          <ol>${plan.steps.map((step) => html`<${Step} key=${step.name} place=${places.get(step.name)} step=${step} operator=${operators.get(step.name)} chosen=${step.name === chosen} />`)}</ol>
        </div>
      </div>
    </div>
  <//>`;
}

const LINES = [["exchanged", "exchange by key"], ["", "within a slot"], ["side", "side output"], ["dead", "dead letters"]];

const Legend = () => html`<ul class="legend wide">
  ${LINES.map(([name, text]) => html`<li key=${name}><svg viewBox="0 0 24 8" aria-hidden="true"><path class="${name} ${name === "dead" ? "side" : ""}" d="M0 4H24" /></svg>${text}</li>`)}
</ul>`;

// -- the chosen step --------------------------------------------------------------------------------------------------

const gaugeName = (name) => name.replace(/_ms$/, "").replaceAll("_", " ");
const gaugeText = (name, value) => (name.endsWith("_ms") && value ? timestamp(value) : number(value));

function Facts({ step, operator }) {
  const inputs = step.inputs.map((one, at) => html`<span key=${at}>${at ? ", " : ""}<a href=${href("graph", one.from)}>${one.from}</a>${one.alias ? ` as ${one.alias}` : ""}${one.output ? ` (${one.output})` : ""}${one.keys.length ? `, exchanged by ${one.keys.join(", ")}` : ""}</span>`);
  const facts = [
    ["reads", inputs.length > 0 && inputs],
    ["chained in", step.vertex !== step.name && step.vertex],
    ...(operator === undefined ? [] : [
      ["rows in", `${number(operator.rows_in)} (${rate(operator.rows_in_per_second)})`],
      ["rows out", `${number(operator.rows_out)} (${rate(operator.rows_out_per_second)})`],
      ["filtered", operator.filtered > 0 && number(operator.filtered)],
      ["failed", operator.failed > 0 && html`<span class="bad">${number(operator.failed)}</span>`],
      ["late", operator.late > 0 && number(operator.late)],
      ["before 1971", operator.before_1971 > 0 && `${number(operator.before_1971)}: ${operator.before_1971_remedy}`],
      ["slot time", `busy ${percent(operator.busy_ratio)}, blocked ${percent(operator.blocked_ratio)}`],
      ["watermark", operator.watermark_ms !== null && `${timestamp(operator.watermark_ms)}, ${duration(Math.max(0, operator.event_time_lag_seconds))} behind the clock${operator.idle ? "; idle: does not hold back watermarks" : ""}`],
      ["stalled", operator.stalled_seconds !== null && html`<span class="bad">for ${duration(operator.stalled_seconds)}${operator.held_back_by ? `, held back by ${operator.held_back_by}` : ""}</span>`],
      ["on hold", operator.on_hold && `${operator.on_hold}, for ${duration(operator.on_hold_seconds)}`],
      ["waiting", operator.waiting],
      ["gauges", Object.keys(operator.gauges).length > 0 && Object.entries(operator.gauges).map(([name, value]) => `${gaugeName(name)} ${gaugeText(name, value)}`).join(", ")],
    ]),
  ].filter(([, value]) => value);
  return html`<dl class="facts">${facts.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>
    ${step.text.length ? html`<pre>${step.text.join("\n")}</pre>` : null}`;
}

const SERIES = [
  ["rows_in_per_second", "rows in", rate], ["rows_out_per_second", "rows out", rate], ["busy_ratio", "busy", percent], ["blocked_ratio", "blocked", percent],
  ["event_time_lag_seconds", "watermark behind the clock", duration], ["waiting_rows", "waiting rows", number], ["failed", "failed", number], ["late", "late", number],
];

function History({ history, name }) {
  const series = history?.steps[name];
  if (series === undefined) return html`<p class="empty">No history has been recorded yet.</p>`;
  const always = SERIES.slice(0, 4);
  const shown = SERIES.filter((one) => always.includes(one) || (series[one[0]] ?? []).some((value) => value));
  return html`<div class="sparks">${shown.map(([key, label, format]) => html`<figure key=${key}>
    <figcaption class="muted">${label} <strong>${format((series[key] ?? []).at(-1))}</strong></figcaption>
    <${Sparkline} values=${series[key]} label=${label} format=${format} at_ms=${history.at_ms} />
  </figure>`)}</div>`;
}

function Subtasks({ operator, before, seconds }) {
  const [busiest, setBusiest] = useState(false);
  const earlier = new Map((before?.subtasks ?? []).map((one) => [one.slot, one]));
  const rows = operator.subtasks.map((one) => {
    const was = earlier.get(one.slot);
    return {
      ...one,
      in_per_second: perSecond(one.rows_in, was?.rows_in, seconds),
      busy: perSecond(one.busy_seconds, was?.busy_seconds, seconds),
      blocked: perSecond(one.blocked_seconds, was?.blocked_seconds, seconds),
      share: operator.rows_in > 0 ? one.rows_in / operator.rows_in : null,
    };
  });
  if (busiest) rows.sort((one, other) => (other.busy ?? 0) - (one.busy ?? 0));
  const any = (key) => rows.some((one) => one[key]);
  const columns = [
    { key: "slot", title: "Slot" },
    { key: "in_per_second", title: "Rows in", numeric: true, render: (one) => rate(one.in_per_second) },
    { key: "share", title: "Share of rows", numeric: true, render: (one) => percent(one.share) },
    { key: "busy", title: "Busy", numeric: true, render: (one) => percent(one.busy) },
    { key: "blocked", title: "Blocked", numeric: true, render: (one) => percent(one.blocked) },
    { key: "rows_in", title: "Rows in, total", numeric: true, render: (one) => number(one.rows_in) },
    { key: "rows_out", title: "Rows out, total", numeric: true, render: (one) => number(one.rows_out) },
    any("failed") && { key: "failed", title: "Failed", numeric: true, render: (one) => number(one.failed) },
    any("late") && { key: "late", title: "Late", numeric: true, render: (one) => number(one.late) },
    any("watermark_ms") && { key: "watermark_ms", title: "Watermark", numeric: true, render: (one) => (one.idle ? "idle" : one.watermark_ms === null ? NONE : timestamp(one.watermark_ms)) },
    ...Object.keys(operator.gauges).map((name) => ({ key: name, title: gaugeName(name), numeric: true, render: (one) => gaugeText(name, one.gauges[name]) })),
  ].filter(Boolean);
  const order = html`<button type="button" class="button" aria-pressed=${String(busiest)} onClick=${() => setBusiest(!busiest)}>Busiest first</button>`;
  return html`<${Panel} title="Subtasks" actions=${rows.length > 1 ? order : null} className="subtasks">
    <${Table} columns=${columns} rows=${rows} row_key="slot" label="Subtasks" empty="No slot has reported yet." />
  <//>`;
}

function Chosen({ plan, name, status, operators, earlier, history }) {
  const place = useRef(null);
  useEffect(() => {
    // Only below the fold, as on a narrow screen: otherwise the picture stays where it is.
    if (place.current?.getBoundingClientRect().top > innerHeight - FOLD_PX) place.current.scrollIntoView();
  }, [name]);
  const step = plan.steps.find((one) => one.name === name);
  if (step === undefined) return html`<p class="empty">The plan has no step “${name}”. <a href=${href("graph")}>Back to the graph.</a></p>`;
  const operator = operators.get(name);
  const { kind, text } = stateOf(operator);
  const before = earlier?.operators.find((one) => one.name === name);
  const seconds = earlier === null ? 0 : status.uptime_seconds - earlier.uptime_seconds;
  const actions = html`<${Badge} kind=${kind} text=${text} /><a href=${href("graph")}>Close</a>`;
  return html`<div class="chosen-step" ref=${place}>
    <div class="columns">
      <${Panel} title="${step.name}: ${step.kind}" actions=${actions}><${Facts} step=${step} operator=${operator} /><//>
      <${Panel} title="Last hour"><${History} history=${history} name=${name} /><//>
    </div>
    ${operator === undefined ? null : html`<${Subtasks} key=${name} operator=${operator} before=${before} seconds=${seconds} />`}
    <${Panel} title="Output rows"><${TapPanel} key=${name} step=${name} /><//>
  </div>`;
}

function Page({ parts: [chosen] }) {
  const planned = useResource("plan", { every_s: 60 });
  const { data: status } = useResource("status");
  const known = planned.data?.steps.some((one) => one.name === chosen);
  const { data: history } = useResource(known ? `history?step=${encodeURIComponent(chosen)}` : null, { every_s: 5 });
  const earlier = useEarlier(status);
  const operators = status === null ? new Map() : operatorsOf(status, earlier);
  return html`<${Loaded} resource=${planned}>${(plan) => html`
    <${Picture} plan=${plan} operators=${operators} chosen=${chosen} />
    ${chosen === undefined ? html`<p class="muted">Select a step to see its subtasks, the last hour and rows of its output.</p>` : html`<${Chosen} plan=${plan} name=${chosen} status=${status} operators=${operators} earlier=${earlier} history=${history} />`}
  `}<//>`;
}

export default { name: "graph", title: "Graph", Page };
