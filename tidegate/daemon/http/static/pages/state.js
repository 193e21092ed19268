// State: how large each state is in the newest checkpoint, and the rows of one key.
import { html, Ago, bytes, Command, fetchOnce, href, Loaded, number, Panel, percent, Problem, Table, useState, useResource } from "../lib.js";
import { Value, visible } from "../records.js";

const nameOf = ({ step, state }) => `${step}/${state}`;

function Sizes({ contents }) {
  const { states, in_flight_bytes } = contents;
  const total = states.reduce((sum, one) => sum + one.size_bytes, 0);
  const share = (one) => (total ? one.size_bytes / total : 0);
  const columns = [
    { key: "step", title: "Step", render: ({ step }) => html`<a href=${href("graph", step)}>${step}</a>` },
    { key: "state", title: "State" },
    { key: "size", title: "Size", numeric: true, render: ({ size_bytes }) => bytes(size_bytes) },
    { key: "share", title: "Share", render: (one) => html`<span class="share"><span class="bar" aria-hidden="true"><span style=${{ width: `${100 * share(one)}%` }}></span></span><span class="percent">${percent(share(one))}</span></span>` },
    { key: "files", title: "Files", numeric: true, render: ({ files }) => number(files) },
    { key: "keys", title: "Key", render: ({ keys, form }) => (keys.length ? html`<span class="key">${keys.map((key) => `${key.name} ${key.type}`).join(", ")}</span>` : html`<span class="muted">list state (${form}), not keyed</span>`) },
  ];
  const largest = states.toSorted((a, b) => b.size_bytes - a.size_bytes);
  return html`<${Panel} title="Sizes">
    <p class="muted"><a href=${href("checkpoints", contents.checkpoint)}>Checkpoint ${number(contents.checkpoint)}</a>, completed <${Ago} ms=${contents.completed_at_ms} />: ${bytes(total)} of state${in_flight_bytes ? `, and ${bytes(in_flight_bytes)} of rows in flight` : ""}.</p>
    <${Table} columns=${columns} rows=${largest} row_key=${nameOf} label="Sizes of states" empty="The pipeline has no state." />
  <//>`;
}

function Rows({ found }) {
  const names = [...new Set(found.rows.flatMap(Object.keys))];
  const columns = names.map((name) => ({ key: name, title: visible(name), render: (row) => html`<${Value} value=${row[name]} />` }));
  const rows = found.rows.map((row, at) => ({ ...row, "\u0000row": at }));
  return html`
    <p class="muted" role="status">Checkpoint ${number(found.checkpoint)}, completed <${Ago} ms=${found.completed_at_ms} />: ${number(rows.length)} ${rows.length === 1 ? "row" : "rows"}${found.cut ? "; more or larger ones were left out" : ""}.</p>
    <${Table} columns=${columns} rows=${rows} row_key=${"\u0000row"} label="Rows of the key" empty="No row has this key." />
    <${Command} text=${found.command} />`;
}

function Lookup({ states, step }) {
  const keyed = states.filter(({ keys }) => keys.length > 0);
  const [chosen, choose] = useState(null);
  const [values, setValues] = useState({});
  const [{ found, error, busy }, setResult] = useState({ found: null, error: null, busy: false });
  const state = keyed.find((one) => nameOf(one) === chosen) ?? keyed.find((one) => one.step === step) ?? keyed[0];
  if (state === undefined) return null;
  const given = state.keys.filter(({ name }) => (values[name] ?? "") !== "");
  const look = async () => {
    setResult({ found: null, error: null, busy: true });
    const key = given.map(({ name }) => `${name}=${values[name]}`);
    try {
      setResult({ found: await fetchOnce("state", { step: state.step, state: state.state, key }, { digits: true }), error: null, busy: false });
    } catch (refused) {
      setResult({ found: null, error: refused, busy: false });
    }
  };
  const submit = (event) => {
    event.preventDefault();
    if (!busy) look();
  };
  const change = (event) => {
    choose(event.target.value);
    setResult({ found: null, error: null, busy: false });
  };
  return html`<${Panel} title="Look up a key">
    <form class="lookup" method="get" onSubmit=${submit}>
      <label><span>State</span>
        <select value=${nameOf(state)} onChange=${change}>${keyed.map((one) => html`<option key=${nameOf(one)} value=${nameOf(one)}>${one.step}: ${one.state}</option>`)}</select>
      </label>
      ${state.keys.map(({ name, type }) => html`<label key=${name}><span>${name} <span class="muted">${type}</span></span>
        <input name=${name} value=${values[name] ?? ""} autocomplete="off" spellcheck="false" onInput=${(event) => setValues({ ...values, [name]: event.target.value })} />
      </label>`)}
      <button type="submit" class="button primary" disabled=${busy || given.length === 0}>Look up</button>
    </form>
    ${state.keys.length > 1 ? html`<p class="muted">If a column is left empty, the whole state is searched for rows with the other values, which takes longer.</p>` : null}
    ${busy ? html`<p class="loading" role="status">Reading the newest checkpoint in a separate process, which takes a few seconds</p>` : null}
    ${error === null ? null : html`<${Problem} error=${error} role="operate" onToken=${look} />`}
    ${found === null ? null : html`<${Rows} found=${found} />`}
  <//>`;
}

function Page({ parts: [step] }) {
  const resource = useResource("state", { every_s: 5 });
  return html`<${Loaded} resource=${resource}>${(contents) => (contents.checkpoint === null ? html`<p class="empty">There is no checkpoint yet.</p>` : html`
    <${Sizes} contents=${contents} />
    <${Lookup} key=${step} states=${contents.states} step=${step} />`)}<//>`;
}

export default { name: "state", title: "State", Page };
