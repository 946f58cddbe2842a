// Icons, and the marks of states: a shape of their own for each, so that colour is never the only sign.
import { capital } from "./format";
import { ICONS } from "./icons";

export type IconName = keyof typeof ICONS;

export function Icon({ name, small }: { name: IconName; small?: boolean }) {
  return (
    <svg class={small ? "icon small" : "icon"} viewBox="0 0 24 24" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

export type MarkKind = "ok" | "warn" | "bad" | "failed" | "cut" | "off" | "busy";

const SHAPES: Record<MarkKind, string> = {
  ok: "M5 .5a4.5 4.5 0 1 1 0 9a4.5 4.5 0 1 1 0-9Z",
  warn: "M5 .8 9.6 9H.4Z",
  // The bar tells the octagon from the disc of a state that is fine.
  bad: "M3.2.4h3.6l2.8 2.8v3.6l-2.8 2.8H3.2L.4 6.8V3.2ZM2.3 4.1v1.8h5.4V4.1Z",
  failed: "M1.9.5 5 3.6 8.1.5 9.5 1.9 6.4 5 9.5 8.1 8.1 9.5 5 6.4 1.9 9.5.5 8.1 3.6 5 .5 1.9Z",
  cut: "M5 .5a4.5 4.5 0 0 0 0 9ZM6.4.2h1.5v9.6H6.4Z",
  off: "M5 1.2a3.8 3.8 0 1 1 0 7.6a3.8 3.8 0 1 1 0-7.6Z",
  busy: "M5 1.2a3.8 3.8 0 1 1 0 7.6a3.8 3.8 0 1 1 0-7.6Z",
};

/** The shape of a state alone; the word has to stand beside it. */
export function Mark({ kind }: { kind: MarkKind }) {
  return (
    <svg class={`mark ${kind}`} viewBox="0 0 10 10" aria-hidden="true">
      <path d={SHAPES[kind]} />
    </svg>
  );
}

export function State({ kind, word }: { kind: MarkKind; word: string }) {
  return (
    <span class="state">
      <Mark kind={kind} />
      {capital(word)}
    </span>
  );
}

/** The sign of the product. */
export function Brand() {
  return (
    <svg viewBox="0 0 22 22" aria-hidden="true">
      <rect class="brand-gate" width="22" height="22" rx="6" />
      <path class="brand-flow" d="M4.5 7h4.2c2.6 0 2 4 4.6 4h4.2M4.5 11h3.2M4.5 15h4.2c2.6 0 2-4 4.6-4" />
    </svg>
  );
}
