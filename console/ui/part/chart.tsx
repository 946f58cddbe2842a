// Charts over time as SVG: stacked bars and lines with a cursor that the pointer and the arrow keys move, spoken values, and
// marks for changes. Series share one array of moments.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { preferences } from "../app/preferences";
import { UNKNOWN } from "./format";
import { useWidth } from "./width";

/** A value of null is a gap. */
export type Series = { name: string; values: (number | null)[]; className: string };

/** Something that happened at a moment. */
export type ChartMark = { at: number; text: string; href?: string | undefined };

type Props = {
  /** The start of each point. */
  times: number[];
  series: Series[];
  unit: (n: number) => string;
  /** The label of a point. */
  timeText: (at: number) => string;
  /** What the chart shows, for those who hear it. */
  summary: string;
  marks?: ChartMark[];
  /** In pixels. */
  height?: number;
  /** Called with a time that was chosen: by dragging over the plot, or by Enter at the cursor. */
  onPeriod?: (from: number, to: number) => void;
  /** Called with the series whose bar or entry in the legend was pressed. */
  onSeries?: (index: number) => void;
};

/** 1, 2 or 5 times a power of ten, so that about `lines` of them reach `max`. */
export function stepOf(max: number, lines: number): number {
  const raw = max / lines;
  const power = 10 ** Math.floor(Math.log10(raw));
  const ratio = raw / power;
  return (ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1) * power;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const ROUND_MS = [
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE_MS),
  ...[1, 2, 3, 4, 6, 12].map((n) => n * HOUR_MS),
  ...[1, 2, 5, 7, 14, 30].map((n) => n * DAY_MS),
];

/** The indexes of the points that have a label: round moments, at most about `most` of them. */
export function labelled(times: number[], most: number, offset = 0): number[] {
  const [first = 0] = times;
  const span = (times.at(-1) ?? first) - first;
  const every = ROUND_MS.find((ms) => span / ms <= most) ?? DAY_MS * 60;
  const round = times.flatMap((at, i) => ((at + offset) % every === 0 ? [i] : []));
  if (round.length > 1 || times.length < 2) return round.length ? round : [0];
  const step = Math.max(1, Math.ceil(times.length / most));
  return times.flatMap((_, i) => (i % step === 0 ? [i] : []));
}

const HEIGHT = 220;
const LEFT = 56;
const RIGHT = 8;
const BOTTOM = 22;
/** The room that labels of marks take above the plot. */
const MARKS_TOP = 24;

/** Where a moment and a value lie, in pixels. */
type Scale = { x: (i: number) => number; y: (value: number) => number; slot: number };

type FrameProps = Props & {
  highest: number;
  /** The room above the highest value, in pixels. */
  head?: number;
  draw: (scale: Scale) => ComponentChildren;
  /** The index of the series that is drawn at a value of a point; -1 if none is. */
  seriesAt?: (i: number, value: number) => number;
};

/** The values at which the axis has a line: one for each label, and only the lowest if there is nothing to measure. */
export function ticksOf(highest: number, ceiling: number, tick: number, unit: (value: number) => string): number[] {
  if (highest === 0) return [0];
  const ticks = Array.from({ length: Math.round(ceiling / tick) + 1 }, (_, n) => n * tick);
  return ticks.filter((value, n) => n === 0 || n === ticks.length - 1 || unit(value) !== unit(ticks[n + 1] ?? 0));
}

/** Axes, cursor, marks, spoken values and the legend around what `draw` returns. */
function Frame(props: FrameProps) {
  const {
    times,
    series,
    unit,
    timeText,
    summary,
    marks = [],
    height = HEIGHT,
    highest,
    head = 0,
    draw,
    onPeriod,
    onSeries,
    seriesAt,
  } = props;
  const [stage, width] = useWidth();
  const [here, setHere] = useState(-1);
  const [dragged, drag] = useState<number | null>(null);
  const [said, say] = useState("");
  const [isTable, showTable] = useState(false);
  const flags = marks.length ? MARKS_TOP : 8;
  const top = flags + head;
  const tick = stepOf(highest || 1, 4);
  const ceiling = Math.ceil((highest || 1) / tick) * tick;
  const slot = Math.max(1, (width - LEFT - RIGHT) / Math.max(1, times.length));
  const x = (i: number): number => LEFT + i * slot;
  /** Wide bars have their labels in the middle. */
  const labelAt = (i: number): number => x(i) + (slot > 40 ? slot / 2 : 0);
  const y = (value: number): number => height - BOTTOM - (value / ceiling) * (height - top - BOTTOM);
  const valueText = (value: number | null | undefined): string => (value == null ? UNKNOWN : unit(value));
  const show = (i: number, aloud: boolean): void => {
    setHere(i);
    if (aloud && i >= 0) {
      const values = series.map(({ name, values }) => `${name} ${values[i] == null ? "unknown" : valueText(values[i])}`);
      say(`${timeText(times[i] ?? 0)}: ${values.join(", ")}`);
    }
  };
  const choose = (from: number, to: number): void => {
    const [first = 0, second = first] = times;
    const start = times[Math.min(from, to)];
    const end = times[Math.max(from, to)];
    if (start !== undefined && end !== undefined) onPeriod?.(start, end + (second - first));
  };
  const at = (event: PointerEvent & { currentTarget: HTMLElement }): number => {
    const i = Math.floor((event.clientX - event.currentTarget.getBoundingClientRect().left - LEFT) / slot);
    return i >= 0 && i < times.length ? i : -1;
  };
  /** A click on a bar takes its series; a click beside it, and a drag, take the time. */
  const release = (event: PointerEvent & { currentTarget: HTMLElement }): void => {
    const i = at(event);
    if (dragged === null || dragged < 0 || i < 0) return;
    const tall = event.clientY - event.currentTarget.getBoundingClientRect().top;
    const picked = dragged === i && onSeries && seriesAt ? seriesAt(i, ((height - BOTTOM - tall) / (height - top - BOTTOM)) * ceiling) : -1;
    if (picked >= 0) onSeries?.(picked);
    else choose(dragged, i);
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && here >= 0 && event.target === event.currentTarget) choose(here, here);
    const to = cursorAfter(event.key, here, times.length);
    if (to === undefined) return;
    event.preventDefault();
    show(to, true);
  };
  const offset = preferences.zone.value === "utc" ? 0 : -new Date(times[0] ?? 0).getTimezoneOffset() * MINUTE_MS;
  const labels = labelled(times, Math.max(2, (width - LEFT - RIGHT) / 84), offset);
  return (
    <div class="chart">
      <div
        ref={stage}
        class="chart-stage"
        role="group"
        aria-roledescription="chart"
        aria-label={`${summary} Left and right arrows move through it.${onPeriod ? " Enter chooses the time." : ""}`}
        tabIndex={0}
        onKeyDown={keys}
        onBlur={() => setHere(-1)}
        onPointerLeave={() => {
          setHere(-1);
          drag(null);
        }}
        onPointerMove={(event) => show(at(event), false)}
        onPointerDown={(event) => onPeriod && drag(at(event))}
        onPointerUp={(event) => {
          release(event);
          drag(null);
        }}
      >
        <svg class="chart-plot" width={width} height={height} viewBox={`0 0 ${Math.max(1, width)} ${height}`} aria-hidden="true">
          {ticksOf(highest, ceiling, tick, unit).map((value) => (
            <g key={value}>
              <line class={value ? "chart-grid" : "chart-base"} x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} />
              <text class="chart-y" x={LEFT - 8} y={y(value) + 4}>
                {unit(value)}
              </text>
            </g>
          ))}
          {highest === 0 && (
            <text class="chart-none" x={(LEFT + width) / 2} y={(top + height - BOTTOM) / 2}>
              Nothing in this time
            </text>
          )}
          {labels.map((i) =>
            labelAt(i) > LEFT + 12 && labelAt(i) < width - 24 ? (
              <text key={i} class="chart-x" x={labelAt(i)} y={height - 6}>
                {timeText(times[i] ?? 0)}
              </text>
            ) : null,
          )}
          {dragged !== null && dragged >= 0 && here >= 0 && (
            <rect
              class="chart-chosen"
              x={x(Math.min(dragged, here))}
              width={(Math.abs(here - dragged) + 1) * slot}
              y={top}
              height={height - BOTTOM - top}
            />
          )}
          {draw({ x, y, slot })}
          {marks.map(({ at, text }) => (
            <g key={`${at} ${text}`}>
              <line class="chart-mark" x1={placeOf(at, times, x)} x2={placeOf(at, times, x)} y1={flags - 4} y2={height - BOTTOM} />
              <circle class="chart-mark-dot" cx={placeOf(at, times, x)} cy={flags - 8} r="3.5" />
            </g>
          ))}
          {here >= 0 && <line class="chart-cursor" x1={x(here) + slot / 2} x2={x(here) + slot / 2} y1={top} y2={height - BOTTOM} />}
        </svg>
        <Flags marks={marks} placeOf={(at) => placeOf(at, times, x)} width={width} />
        {here >= 0 && (
          <div
            class="chart-tip"
            style={
              x(here) > width / 2 ? { left: `${x(here) - 12}px`, transform: "translateX(-100%)" } : { left: `${x(here) + slot + 12}px` }
            }
          >
            <div class="chart-tip-time">{timeText(times[here] ?? 0)}</div>
            {[...series].reverse().map(({ name, values, className }) => (
              <div key={name} class="chart-tip-row">
                <i class={`key ${className}`} />
                <span class="clip">{name}</span>
                <b>{valueText(values[here])}</b>
              </div>
            ))}
          </div>
        )}
        <p class="sr" aria-live="polite">
          {said}
        </p>
      </div>
      <div class="chart-legend">
        {series.map(({ name, className }, i) => {
          const entry = (
            <>
              <i class={`key ${className}`} />
              <span class="clip">{name}</span>
            </>
          );
          return onSeries ? (
            <button key={name} type="button" class="chart-entry link" title="Only this" onClick={() => onSeries(i)}>
              {entry}
            </button>
          ) : (
            <span key={name} class="chart-entry">
              {entry}
            </span>
          );
        })}
        <button type="button" class="chart-entry link faint" aria-expanded={isTable} onClick={() => showTable(!isTable)}>
          {isTable ? "Hide the table" : "Show as table"}
        </button>
      </div>
      {isTable && <Numbers times={times} series={series} timeText={timeText} valueText={valueText} summary={summary} />}
    </div>
  );
}

type NumbersProps = Pick<Props, "times" | "series" | "timeText" | "summary"> & { valueText: (value: number | null | undefined) => string };

/** The values of a chart as a table, the newest first. */
function Numbers({ times, series, timeText, summary, valueText }: NumbersProps) {
  return (
    <div class="table-wrap chart-table" role="group" aria-label={`${summary} As a table.`} tabIndex={0}>
      <table class="table">
        <thead>
          <tr>
            <th scope="col">Time</th>
            {series.map(({ name }) => (
              <th key={name} scope="col" class="num">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {times
            .map((at, i) => (
              <tr key={at}>
                <th scope="row">{timeText(at)}</th>
                {series.map(({ name, values }) => (
                  <td key={name} class="num">
                    {valueText(values[i])}
                  </td>
                ))}
              </tr>
            ))
            .reverse()}
        </tbody>
      </table>
    </div>
  );
}

/** The place of the cursor after a key; undefined for keys that do not move it. */
function cursorAfter(key: string, here: number, count: number): number | undefined {
  const last = count - 1;
  const moves: Record<string, number> = {
    ArrowLeft: Math.max(0, (here < 0 ? count : here) - 1),
    ArrowRight: Math.min(last, here + 1),
    Home: 0,
    End: last,
    Escape: -1,
  };
  return moves[key];
}

/** The place of a moment between the points. */
function placeOf(at: number, times: number[], x: (i: number) => number): number {
  const [first = 0, second = first + 1] = times;
  return x(Math.max(0, Math.min(times.length, (at - first) / (second - first))));
}

type FlagsProps = { marks: ChartMark[]; placeOf: (at: number) => number; width: number };

/** A label's place: at the right of its mark, or before it. */
export type FlagPlace = { room: number; isBefore: boolean } | null;

/** Places the labels of marks, the first at the left. One that another would cover is left out; the last one may stand before its mark. */
export function flagsOf(places: number[], width: number): FlagPlace[] {
  let taken = 0;
  return places.map((from, i) => {
    const next = places[i + 1];
    const after = Math.min(next === undefined ? LAST_FLAG_MOST : FLAG_MOST, (next ?? width) - from - FLAG_GAP);
    const before = Math.min(LAST_FLAG_MOST, from - FLAG_GAP - taken);
    const isBefore = next === undefined && after < FLAG_LEAST;
    const room = isBefore ? before : after;
    if (room < FLAG_LEAST) return null;
    taken = isBefore ? from : from + room;
    return { room, isBefore };
  });
}

/** The labels of marks. */
function Flags({ marks, placeOf, width }: FlagsProps) {
  const places = marks.map(({ at }) => placeOf(at));
  const flags = flagsOf(places, width);
  return (
    <>
      {marks.map(({ at, text, href }, i) => {
        const [flag, from] = [flags[i], places[i] ?? 0];
        if (!flag) return null;
        const maxWidth = `${flag.room}px`;
        const style = flag.isBefore ? { right: `${width - from + 9}px`, maxWidth, marginLeft: "0" } : { left: `${from}px`, maxWidth };
        return href ? (
          <a key={`${at} ${text}`} class="chart-flag" title={text} href={href} style={style}>
            {text}
          </a>
        ) : (
          <span key={`${at} ${text}`} class="chart-flag" title={text} style={style}>
            {text}
          </span>
        );
      })}
    </>
  );
}

/** A label takes at least and at most this room, in pixels, and keeps this distance. The last one may take more. */
const FLAG_LEAST = 60;
const FLAG_MOST = 200;
const LAST_FLAG_MOST = 280;
const FLAG_GAP = 16;

/** Stacked bars. A failure among a thousand successes gets a sign above its bar. */
export function Bars(props: Props) {
  const { times, series } = props;
  const sums = times.map((_, i) => series.reduce((sum, { values }) => sum + (values[i] ?? 0), 0));
  const failures = series.filter(({ className }) => className === "bad" || className === "cut");
  const isBad = times.map((_, i) => failures.some(({ values }) => (values[i] ?? 0) > 0));
  const hasBad = isBad.some(Boolean);
  return (
    <Frame
      {...props}
      highest={Math.max(...sums, 0)}
      head={hasBad ? SIGN_TALL : 0}
      seriesAt={(i, value) => stackedAt(series, i, value)}
      draw={(scale) => (
        <>
          {series.map(({ name, className }, n) => (
            <path key={name} class={`chart-bar ${className}`} d={barsOf(series, n, times.length, scale)} />
          ))}
          {hasBad && <path class="chart-sign" d={signsOf(isBad, sums, scale)} />}
        </>
      )}
    />
  );
}

/** The series whose part of a stacked bar lies at a value; -1 beside the bar. */
export function stackedAt(series: Series[], i: number, value: number): number {
  let below = 0;
  return series.findIndex(({ values }) => {
    const from = below;
    below += values[i] ?? 0;
    return value >= from && value < below;
  });
}

/** Lines; a value of null interrupts one. Where most values are unknown, a thin line leads from one that is known to the next. */
export function Lines(props: Props) {
  const { series } = props;
  const highest = Math.max(...series.flatMap(({ values }) => values.map((value) => value ?? 0)), 0);
  return (
    <Frame
      {...props}
      highest={highest}
      draw={({ x, y, slot }) =>
        series.map(({ name, values, className }) => (
          <g key={name}>
            {knownOf(values).length * 2 < values.length && (
              <path class={`chart-line joined ${className}`} d={joined(values, (i) => x(i) + slot / 2, y)} />
            )}
            <path class={`chart-line ${className}`} d={lineOf(values, (i) => x(i) + slot / 2, y)} />
          </g>
        ))
      }
    />
  );
}

const wideOf = (slot: number, count: number): number => Math.max(1, slot - (count > 90 ? 1 : 2));

/** The bars of one series, each on top of those of the series before it. */
function barsOf(series: Series[], n: number, count: number, { x, y, slot }: Scale): string {
  const wide = wideOf(slot, count);
  let path = "";
  for (let i = 0; i < count; i += 1) {
    const value = series[n]?.values[i] ?? 0;
    if (value <= 0) continue;
    const below = series.slice(0, n).reduce((sum, { values }) => sum + (values[i] ?? 0), 0);
    const gap = below ? 1 : 0;
    const from = y(below) - gap;
    const tall = Math.max(1.5, y(below) - y(below + value) - gap);
    path += `M${x(i).toFixed(1)} ${from.toFixed(1)}h${wide.toFixed(1)}v-${tall.toFixed(1)}h-${wide.toFixed(1)}Z`;
  }
  return path;
}

/** The room of a sign above its bar, so that it covers no label of a mark. */
const SIGN_TALL = 12;

/** A cross above each bar that holds a failure. */
function signsOf(isBad: boolean[], sums: number[], { x, y, slot }: Scale): string {
  const wide = wideOf(slot, sums.length);
  let path = "";
  for (const [i, sum] of sums.entries()) {
    if (!isBad[i]) continue;
    const cx = x(i) + wide / 2 - 2.6;
    const cy = y(sum) - 12;
    path += `M${cx.toFixed(1)} ${cy.toFixed(1)}l2.6 2.6 2.6-2.6 1.4 1.4-2.6 2.6 2.6 2.6-1.4 1.4-2.6-2.6-2.6 2.6-1.4-1.4 2.6-2.6-2.6-2.6Z`;
  }
  return path;
}

/** A line through the values. A value between two gaps is a dash. */
export function lineOf(values: (number | null)[], x: (i: number) => number, y: (value: number) => number): string {
  let path = "";
  for (const [i, value] of values.entries()) {
    if (value === null) continue;
    const isFirst = i === 0 || values[i - 1] == null;
    const isAlone = isFirst && values[i + 1] == null;
    path += `${isFirst ? "M" : "L"}${(x(i) - (isAlone ? DASH / 2 : 0)).toFixed(1)} ${y(value).toFixed(1)}`;
    if (isAlone) path += `h${DASH}`;
  }
  return path;
}

/** A line through the values that are known. */
const joined = (values: (number | null)[], x: (i: number) => number, y: (value: number) => number): string =>
  knownOf(values)
    .map(([i, value], n) => `${n ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`)
    .join("");

/** The length of the dash of a value that stands alone, in pixels. */
const DASH = 4;
const SPARK_WIDE = 96;
const SPARK_TALL = 26;

/** The values of a spark that are known, each with its place. The line leads over the gaps between them. */
export const knownOf = (values: (number | null)[]): [number, number][] =>
  values.flatMap((value, i): [number, number][] => (value === null ? [] : [[i, value]]));

type SparkProps = {
  values: (number | null)[];
  kind?: string;
  /** The value of the upper edge, for sparks that are compared; the highest value of this one unless given. */
  highest?: number;
};

/** A line without axes beside a figure that states its value. A value of null is unknown. */
export function Spark({ values, kind = "series-1", highest }: SparkProps) {
  const known = knownOf(values);
  const [first, last] = [known[0], known.at(-1)];
  if (known.length < 2 || !first || !last) return null;
  const high = highest ?? (Math.max(...known.map(([, value]) => value), 0) || 1);
  const x = (i: number): number => 1 + (i / (values.length - 1)) * (SPARK_WIDE - 6);
  const y = (value: number): number => SPARK_TALL - 3 - (value / high) * (SPARK_TALL - 6);
  const path = joined(values, x, y);
  return (
    <svg class="spark" viewBox={`0 0 ${SPARK_WIDE} ${SPARK_TALL}`} width={SPARK_WIDE} height={SPARK_TALL} aria-hidden="true">
      <path class={`spark-area ${kind}`} d={`${path}L${x(last[0])} ${SPARK_TALL}L${x(first[0])} ${SPARK_TALL}Z`} />
      <path class={`chart-line ${kind}`} d={path} />
      <circle class={`spark-dot ${kind}`} cx={x(last[0])} cy={y(last[1])} r="2.2" />
    </svg>
  );
}
