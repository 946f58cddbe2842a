// Bars over time as SVG: stacked series with a cursor that the pointer and the arrow keys move, spoken values, and a table of
// the same numbers. Series share one array of moments.
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";

export type Series = { name: string; values: number[]; className: string };

type Props = {
  /** The start of each bar. */
  times: number[];
  series: Series[];
  unit: (n: number) => string;
  /** The label of a bar. */
  timeText: (at: number) => string;
  /** What the chart shows, for those who hear it. */
  summary: string;
};

/** 1, 2 or 5 times a power of ten, so that about `lines` of them reach `max`. */
export function stepOf(max: number, lines: number): number {
  const raw = max / lines;
  const power = 10 ** Math.floor(Math.log10(raw));
  const ratio = raw / power;
  return (ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1) * power;
}

const HEIGHT = 220;
const LEFT = 56;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;

function useWidth() {
  const ref = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const node = ref.current;
    if (!node) return;
    const observer = new ResizeObserver(() => setWidth(node.clientWidth));
    observer.observe(node);
    setWidth(node.clientWidth);
    return () => observer.disconnect();
  }, []);
  return [ref, width] as const;
}

export function Bars({ times, series, unit, timeText, summary }: Props) {
  const [stage, width] = useWidth();
  const [here, setHere] = useState(-1);
  const [said, say] = useState("");
  const id = useId();
  const sums = times.map((_, i) => series.reduce((sum, { values }) => sum + (values[i] ?? 0), 0));
  const highest = Math.max(...sums, 0) || 1;
  const tick = stepOf(highest, 4);
  const ceiling = Math.ceil(highest / tick) * tick;
  const slot = Math.max(1, (width - LEFT - RIGHT) / Math.max(1, times.length));
  const x = (i: number): number => LEFT + i * slot;
  const y = (value: number): number => HEIGHT - BOTTOM - (value / ceiling) * (HEIGHT - TOP - BOTTOM);
  const show = (i: number, aloud: boolean): void => {
    setHere(i);
    if (aloud && i >= 0)
      say(`${timeText(times[i] ?? 0)}: ${series.map(({ name, values }) => `${name} ${unit(values[i] ?? 0)}`).join(", ")}`);
  };
  const keys = (event: KeyboardEvent): void => {
    const last = times.length - 1;
    const moves: Record<string, number> = {
      ArrowLeft: Math.max(0, (here < 0 ? times.length : here) - 1),
      ArrowRight: Math.min(last, here + 1),
      Home: 0,
      End: last,
      Escape: -1,
    };
    const to = moves[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to, true);
  };
  const every = Math.max(1, Math.ceil(80 / slot));
  return (
    <div class="chart">
      <div
        ref={stage}
        class="chart-stage"
        role="group"
        aria-roledescription="chart"
        aria-label={`${summary} Left and right arrows move through it.`}
        tabIndex={0}
        onKeyDown={keys}
        onBlur={() => setHere(-1)}
        onPointerLeave={() => setHere(-1)}
        onPointerMove={(event) => {
          const i = Math.floor((event.clientX - event.currentTarget.getBoundingClientRect().left - LEFT) / slot);
          show(i >= 0 && i < times.length ? i : -1, false);
        }}
      >
        <svg class="chart-plot" width={width} height={HEIGHT} viewBox={`0 0 ${Math.max(1, width)} ${HEIGHT}`} aria-hidden="true">
          {Array.from({ length: Math.round(ceiling / tick) + 1 }, (_, n) => (
            <g key={n}>
              <line class={n ? "chart-grid" : "chart-base"} x1={LEFT} x2={width - RIGHT} y1={y(n * tick)} y2={y(n * tick)} />
              <text class="chart-y" x={LEFT - 8} y={y(n * tick) + 4}>
                {unit(n * tick)}
              </text>
            </g>
          ))}
          {times.map((at, i) =>
            i % every === 0 && x(i) < width - 40 ? (
              <text key={at} class="chart-x" x={x(i) + slot / 2} y={HEIGHT - 6}>
                {timeText(at)}
              </text>
            ) : null,
          )}
          {series.map(({ name, className }, n) => (
            <path key={name} class={`chart-bar ${className}`} d={pathOf(series, n, times.length, slot, x, y)} />
          ))}
          {here >= 0 && <line class="chart-cursor" x1={x(here) + slot / 2} x2={x(here) + slot / 2} y1={TOP} y2={HEIGHT - BOTTOM} />}
        </svg>
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
                <b>{unit(values[here] ?? 0)}</b>
              </div>
            ))}
          </div>
        )}
        <p class="sr" aria-live="polite" id={id}>
          {said}
        </p>
      </div>
      <div class="chart-legend">
        {series.map(({ name, className }) => (
          <span key={name} class="chart-entry">
            <i class={`key ${className}`} />
            <span class="clip">{name}</span>
          </span>
        ))}
      </div>
    </div>
  );
}

/** The bars of one series, each on top of those of the series before it. */
function pathOf(series: Series[], n: number, count: number, slot: number, x: (i: number) => number, y: (value: number) => number): string {
  const wide = Math.max(1, slot - (count > 90 ? 1 : 2));
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
