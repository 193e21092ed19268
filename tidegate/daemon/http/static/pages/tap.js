// Sampled rows of a step's output; the page Graph shows them for the chosen step.
import { html, Command, fetchOnce, number, Problem, useEffect, useRef, useState } from "../lib.js";

const COUNTS = [5, 10, 25, 100];
const CELL_MAX = 80;
const ENDS = {
  rows: "",
  bytes: "The next row would exceed the limit of 100 kB.",
  time: "No more rows arrived within 10 s.",
  restart: "The slots were restarted meanwhile.",
};

const isNumber = (value) => typeof value === "number" || Boolean(JSON.isRawJSON?.(value));
const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function Cell({ value }) {
  if (value === undefined) return null;
  if (value === null) return html`<span class="muted">null</span>`;
  const text = textOf(value);
  return text.length <= CELL_MAX ? text : html`<details><summary>${text.slice(0, CELL_MAX)}…</summary>${text}</details>`;
}

function Rows({ rows }) {
  const names = [...new Set(rows.flatMap(Object.keys))];
  const numeric = new Set(names.filter((name) => rows.every((row) => isNumber(row[name] ?? 0))));
  const kind = (name) => (numeric.has(name) ? "numeric" : "");
  return html`<div class="scroll" role="group" tabindex="0" aria-label="Rows">
    <table class="rows">
      <thead><tr>${names.map((name) => html`<th key=${name} scope="col" class=${kind(name)}>${name}</th>`)}</tr></thead>
      <tbody>${rows.map((row, at) => html`<tr key=${at}>${names.map((name) => html`<td key=${name} class=${kind(name)}><${Cell} value=${row[name]} /></td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

function Answer({ answer }) {
  const why = ENDS[answer.ended] ?? "";
  return html`<p role="status">${number(answer.rows.length)} ${answer.rows.length === 1 ? "row" : "rows"}, sampled from all slots as they were processed. ${why}</p>
    ${answer.rows.length ? html`<${Rows} rows=${answer.rows} />` : null}`;
}

/** A form that copies rows, and the rows. `step` is a source, a step, a side output or a sink. */
export function TapPanel({ step, file = "FILE" }) {
  const [rows, setRows] = useState(10);
  const [found, setFound] = useState({});
  const asked = useRef(0);
  // Rows of another step, or an answer that comes after another question, are not shown.
  useEffect(() => {
    asked.current += 1;
    setFound({});
  }, [step]);
  const ask = async () => {
    const number = (asked.current += 1);
    setFound({ copying: true });
    const told = await fetchOnce("tap", { step, rows }, { digits: true }).then((answer) => ({ answer }), (error) => ({ error }));
    if (number === asked.current) setFound(told);
  };
  return html`<div class="tap">
    <div class="toolbar">
      <label>Rows <select value=${rows} disabled=${found.copying} onChange=${(event) => setRows(Number(event.target.value))}>${COUNTS.map((count) => html`<option key=${count} value=${count}>${count}</option>`)}</select></label>
      <button type="button" class="button" disabled=${found.copying} onClick=${ask}>Show rows</button>
      ${found.copying ? html`<span class="loading" role="status">Waiting for the next rows</span>` : null}
    </div>
    ${found.error ? html`<${Problem} error=${found.error} role="operate" onToken=${ask} />` : null}
    ${found.answer ? html`<${Answer} answer=${found.answer} />` : null}
    <${Command} text=${`tidegate tap ${file} ${step} --rows ${rows}`} />
  </div>`;
}
