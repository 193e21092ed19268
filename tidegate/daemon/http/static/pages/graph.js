// Graph.
import { html } from "../lib.js";

function Page({ parts }) {
  return html`<p class="empty">Nothing here yet. ${parts.join(" / ")}</p>`;
}

export default { name: "graph", title: "Graph", Page };
