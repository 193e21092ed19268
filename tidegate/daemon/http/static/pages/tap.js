// Sampled rows of a step's output; the page Graph shows them for the chosen step.
import { html } from "../lib.js";

export function TapPanel({ step }) {
  return html`<p class="empty">Nothing here yet: ${step}</p>`;
}
