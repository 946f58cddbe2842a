// What happened to a request, in order and to scale: attempts, targets that were passed over, pauses, and the answer.
import type { FullRecord, TimedStep } from "../api/shapes";
import { duration } from "./format";
import { Icon, Mark } from "./icon";
import { asMet, isPassedOver, markOf, stepWords } from "./outcome";
import { useWidth } from "./width";

export type Bar = {
  kind: "gateway" | "failed" | "served" | "passed" | "pause" | "unrecorded";
  step: TimedStep | null;
  /** From the arrival of the request, in microseconds. */
  from: number;
  until: number;
};

/** Lays out what happened: by the recorded times, or end to end for records that lack them. */
export function barsOf(record: FullRecord): Bar[] {
  const steps = asMet(record.trace ?? []);
  return steps.some(({ start_us }) => start_us !== undefined) ? timedBars(record, steps) : untimedBars(record, steps);
}

/** Attempts where they were, and the pauses between them. */
function timedBars(record: FullRecord, steps: TimedStep[]): Bar[] {
  const bars: Bar[] = [];
  const first = steps.find((step) => !isPassedOver(step))?.start_us ?? 0;
  if (first > 0) bars.push({ kind: "gateway", step: null, from: 0, until: first });
  let at = first;
  for (const step of steps) {
    const from = step.start_us ?? at;
    if (isPassedOver(step)) {
      bars.push({ kind: "passed", step, from: at, until: at });
      continue;
    }
    if (from - at > PAUSE_LEAST_US) bars.push({ kind: "pause", step: null, from: at, until: from });
    const isServed = step.result === "served";
    at = isServed ? Math.max(from, record.duration_us) : from + (step.spent_us ?? 0);
    bars.push({ kind: isServed ? "served" : "failed", step, from, until: at });
  }
  return bars;
}

/** A gap of less is the gateway's own work. */
const PAUSE_LEAST_US = 2_000;

/**
 * Lays the attempts of a record end to end, because older records hold how long each took but not when it began. The time
 * before the first content that no attempt accounts for becomes one block before the attempt that answered.
 */
function untimedBars(record: FullRecord, steps: TimedStep[]): Bar[] {
  const end = record.first_content_us ?? record.duration_us;
  const spent = steps.reduce((sum, step) => sum + (step.spent_us ?? 0), 0);
  const missing = Math.max(0, end - spent);
  const bars: Bar[] = [];
  let at = 0;
  for (const step of steps) {
    if (isPassedOver(step)) {
      bars.push({ kind: "passed", step, from: at, until: at });
      continue;
    }
    const isServed = step.result === "served";
    if (isServed && missing > end * UNRECORDED_SHARE) {
      bars.push({ kind: "unrecorded", step: null, from: at, until: at + missing });
      at += missing;
    }
    const from = at;
    at += step.spent_us ?? 0;
    bars.push({ kind: isServed ? "served" : "failed", step, from, until: isServed ? Math.max(at, record.duration_us) : at });
  }
  return bars;
}

/** A remainder of less than this share is rounding and the gateway's own work. */
const UNRECORDED_SHARE = 0.02;

/** Round moments for the ruler, at most eight. */
export function ticksOf(end: number): number[] {
  const raw = end / 7;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, raw)));
  const ratio = raw / power;
  const step = (ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1) * power;
  const ticks: number[] = [];
  for (let at = 0; at < end * 0.97; at += step) ticks.push(at);
  return ticks;
}

/** The room of a moment's label, and of half the flag of the first token with it, in pixels. */
const LABEL_WIDE = 64;
const FLAG_REACH = 88;

/** The moments of the ruler that have a label: as many as there is room for, and none below the flag of the first token. */
export function labelledTicks(ticks: number[], end: number, first: number | null, width: number): number[] {
  const [, step = end] = ticks;
  const every = Math.max(1, Math.ceil((LABEL_WIDE * end) / (step * Math.max(1, width))));
  return ticks.filter((tick, i) => i % every === 0 && (first === null || (Math.abs(tick - first) * width) / end > FLAG_REACH));
}

const tickText = (us: number, end: number): string => (end >= 1e6 ? `${+(us / 1e6).toFixed(2)} s` : `${+(us / 1e3).toFixed(2)} ms`);

export function Waterfall({ record }: { record: FullRecord }) {
  const bars = barsOf(record);
  const end = Math.max(1, record.duration_us, ...bars.map(({ until }) => until));
  const at = (us: number): string => `${((us / end) * 100).toFixed(2)}%`;
  const ticks = ticksOf(end);
  const first = record.first_content_us;
  const [ruler, width] = useWidth();
  let attempts = 0;
  return (
    <>
      <div class="wf" aria-hidden="true">
        <div class="wf-row thin">
          <div class="wf-who" />
          <div class="wf-ruler" ref={ruler}>
            {labelledTicks(ticks, end, first, width).map((tick) => (
              <span key={tick} style={{ left: at(tick) }}>
                {tickText(tick, end)}
              </span>
            ))}
            {first !== null && (
              <span
                class={first > end * 0.8 ? "wf-flag before" : first < end * 0.1 ? "wf-flag after" : "wf-flag"}
                style={{ left: at(first) }}
              >
                first token {duration(first)}
              </span>
            )}
          </div>
        </div>
      </div>
      <ol class="wf">
        {bars.map((bar, i) => {
          if (bar.kind === "failed" || bar.kind === "served") attempts += 1;
          return <Row key={i} bar={bar} record={record} attempt={attempts} ticks={ticks} first={first} at={at} end={end} />;
        })}
      </ol>
      <Legend />
    </>
  );
}

const UNSTEPPED: Partial<Record<Bar["kind"], string>> = {
  gateway: "Accepted, authorised, planned",
  pause: "Paused before the next attempt",
  unrecorded: "Pauses and the gateway",
};

type RowProps = {
  bar: Bar;
  record: FullRecord;
  attempt: number;
  ticks: number[];
  first: number | null;
  end: number;
  at: (us: number) => string;
};

function Row({ bar, record, attempt, ticks, first, end, at }: RowProps) {
  const { step } = bar;
  const isThin = bar.kind !== "failed" && bar.kind !== "served";
  return (
    <li class={isThin ? "wf-row thin" : "wf-row"}>
      <div class="wf-who">
        {step ? <Mark kind={markOf(step, record.outcome)} /> : <Icon name={bar.kind === "gateway" ? "log-in" : "hourglass"} small />}
        <span class="clip">
          {step ? (
            <>
              {isThin ? <span class="muted">{step.provider}</span> : <b>{step.provider}</b>}{" "}
              <span class="faint">{isThin ? "not tried" : `attempt ${step.attempt ?? attempt}`}</span>
              {step.credential && <span class="faint"> key {step.credential}</span>}
            </>
          ) : (
            <span class="muted">{UNSTEPPED[bar.kind] ?? ""}</span>
          )}
        </span>
        {step && !isThin && <span class="help clip mono">{step.model}</span>}
      </div>
      <div class="wf-track">
        <svg aria-hidden="true">
          {ticks.map((tick) => (
            <line key={tick} class="wf-grid" x1={at(tick)} x2={at(tick)} y1="0" y2="100%" />
          ))}
          {first !== null && <line class="wf-line" x1={at(first)} x2={at(first)} y1="0" y2="100%" />}
          <Shapes bar={bar} record={record} at={at} />
        </svg>
        <Note bar={bar} record={record} end={end} at={at} />
      </div>
    </li>
  );
}

type ShapeProps = Pick<RowProps, "bar" | "record" | "at">;

function Shapes({ bar, record, at }: ShapeProps) {
  const rect = (className: string, from: number, until: number) =>
    until > from ? (
      <rect class={className} x={at(from)} width={at(until - from)} y="50%" height="14" transform="translate(0 -7)" rx="2" />
    ) : null;
  if (bar.kind === "gateway") return rect("wf-gate", bar.from, bar.until);
  if (bar.kind === "unrecorded" || bar.kind === "pause")
    return <line class="wf-pause" x1={at(bar.from)} x2={at(bar.until)} y1="50%" y2="50%" />;
  if (bar.kind === "failed") return rect("wf-fail-wait", bar.from, bar.until);
  if (bar.kind === "passed") return null;
  const head = bar.from + (bar.step?.head_us ?? 0);
  const first = Math.max(head, bar.step?.first_content_us ?? record.first_content_us ?? bar.until);
  return (
    <>
      {rect("wf-wait", bar.from, head)}
      {rect("wf-think", head, first)}
      {rect("wf-flow", first, bar.until)}
    </>
  );
}

function Note({ bar, record, end, at }: ShapeProps & { end: number }) {
  const words = wordsOf(bar, record);
  // On the side with more room, and cut off at the edge.
  const isLate = bar.from > end - bar.until;
  const room = `calc(${at(isLate ? bar.from : end - bar.until)} - 8px)`;
  if (bar.kind === "served") return <span class="sr">{words}</span>;
  return (
    <span
      class={`wf-note ${bar.kind === "failed" ? "bad" : ""} ${isLate ? "before" : ""}`}
      style={{ left: at(isLate ? bar.from : bar.until), maxWidth: room, marginLeft: isLate ? "-8px" : "8px" }}
      title={words}
    >
      {words}
    </span>
  );
}

function wordsOf(bar: Bar, record: FullRecord): string {
  const { step } = bar;
  if (bar.kind === "unrecorded") return `${duration(bar.until - bar.from)}, not recorded when`;
  if (!step) return duration(bar.until - bar.from);
  if (bar.kind === "passed") {
    const wait = step.circuit_wait_ms ?? step.wait_ms;
    return wait === undefined ? stepWords(step) : `${stepWords(step)}, next try in ${duration(wait * 1000)}`;
  }
  if (bar.kind === "served")
    return `answered: first content after ${duration(record.first_content_us)}, ended after ${duration(record.duration_us)}`;
  const asked = step.retry_after_ms === undefined ? "" : `, asked to wait ${duration(step.retry_after_ms * 1000)}`;
  return `${stepWords(step)}, ${duration(step.spent_us)}${asked}${step.message ? `: ${step.message}` : ""}`;
}

function Legend() {
  const sample = (className: string, text: string) => (
    <span>
      <svg aria-hidden="true">
        <rect class={className} x=".5" y=".5" width="17" height="8" rx="2" />
      </svg>
      {text}
    </span>
  );
  return (
    <div class="legend">
      {sample("wf-wait", "until the head")}
      {sample("wf-think", "until the first token")}
      {sample("wf-flow", "streaming")}
      {sample("wf-fail-wait", "failed")}
      {sample("wf-gate", "the gateway")}
    </div>
  );
}
