// What happened to a request, in order and to scale: attempts, targets that were passed over, pauses, and the answer.
import type { RequestRecord, Step } from "../api/types";
import { duration } from "./format";
import { Icon, Mark } from "./icon";
import { isPassedOver, stepWords } from "./outcome";

export type Bar = {
  kind: "failed" | "served" | "passed" | "unrecorded";
  step: Step | null;
  /** From the arrival of the request, in microseconds. */
  from: number;
  until: number;
};

/**
 * Lays the attempts of a record end to end, because records hold how long each took but not when it began. The time before
 * the first content that no attempt accounts for becomes one block before the attempt that answered.
 */
export function barsOf(record: RequestRecord): Bar[] {
  const steps = record.trace ?? [];
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

const tickText = (us: number, end: number): string => (end >= 1e6 ? `${+(us / 1e6).toFixed(2)} s` : `${+(us / 1e3).toFixed(2)} ms`);

export function Waterfall({ record }: { record: RequestRecord }) {
  const bars = barsOf(record);
  const end = Math.max(1, record.duration_us, ...bars.map(({ until }) => until));
  const at = (us: number): string => `${((us / end) * 100).toFixed(2)}%`;
  const ticks = ticksOf(end);
  const first = record.first_content_us;
  let attempts = 0;
  return (
    <>
      <div class="wf" aria-hidden="true">
        <div class="wf-row thin">
          <div class="wf-who" />
          <div class="wf-ruler">
            {ticks.map((tick) => (
              <span key={tick} style={{ left: at(tick) }}>
                {tickText(tick, end)}
              </span>
            ))}
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

type RowProps = {
  bar: Bar;
  record: RequestRecord;
  attempt: number;
  ticks: number[];
  first: number | null;
  end: number;
  at: (us: number) => string;
};

function Row({ bar, record, attempt, ticks, first, end, at }: RowProps) {
  const { step } = bar;
  const isThin = bar.kind === "passed" || bar.kind === "unrecorded";
  return (
    <li class={isThin ? "wf-row thin" : "wf-row"}>
      <div class="wf-who">
        {bar.kind === "unrecorded" ? (
          <Icon name="hourglass" small />
        ) : (
          <Mark kind={bar.kind === "served" ? "ok" : bar.kind === "failed" ? "bad" : "off"} />
        )}
        <span class="clip">
          {step ? (
            <>
              {isThin ? <span class="muted">{step.provider}</span> : <b>{step.provider}</b>}{" "}
              <span class="faint">{isThin ? "not tried" : `attempt ${attempt}`}</span>
            </>
          ) : (
            <span class="muted">Pauses and the gateway</span>
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
  if (bar.kind === "unrecorded") return <line class="wf-pause" x1={at(bar.from)} x2={at(bar.until)} y1="50%" y2="50%" />;
  if (bar.kind === "failed") return rect("wf-fail-wait", bar.from, bar.until);
  if (bar.kind === "passed") return null;
  const head = bar.from + (bar.step?.head_us ?? 0);
  const first = Math.max(head, record.first_content_us ?? bar.until);
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
  const isLate = bar.until > end * 0.6;
  if (bar.kind === "served") return <span class="sr">{words}</span>;
  return (
    <span
      class={`wf-note ${bar.kind === "failed" ? "bad" : ""} ${isLate ? "before" : ""}`}
      style={{ left: at(isLate ? bar.from : bar.until), ...(isLate ? { marginLeft: "-8px" } : { marginLeft: "8px" }) }}
    >
      {words}
    </span>
  );
}

function wordsOf(bar: Bar, record: RequestRecord): string {
  if (!bar.step) return `${duration(bar.until - bar.from)}, not recorded when`;
  if (bar.kind === "passed") return stepWords(bar.step);
  if (bar.kind === "served")
    return `answered: first content after ${duration(record.first_content_us)}, ended after ${duration(record.duration_us)}`;
  return `${stepWords(bar.step)}, ${duration(bar.step.spent_us)}`;
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
    </div>
  );
}
