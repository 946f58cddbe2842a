// The route of a run while it is under way, as the live stream reports it: once a second, where the request is and what it waits for.
import { useEffect, useState } from "preact/hooks";
import { useLive } from "../../api/live";
import type { Running } from "../../api/shapes";
import { duration } from "../../part/format";
import { Mark } from "../../part/icon";

/** A time that one attempt spent in one stage, in milliseconds since the run began. */
export type Phase = { provider: string; model: string; attempt: number; stage: Running["stage"]; from: number; until: number };

/** What a run is recognised by among the running requests: its id is known only with the head of its answer. */
export type Watched = { requestId: string | null; selector: string; sentAt: number };

/** Returns the running request of a run; undefined if none is known. */
export function runOf(running: Iterable<Running>, { requestId, selector, sentAt }: Watched): Running | undefined {
  const all = [...running];
  const own = all.find(({ request_id }) => request_id === requestId);
  // The clocks of the browser and the gateway may differ.
  return own ?? all.filter((of) => of.selector === selector && Math.abs(of.started_at_ms - sentAt) < SLACK_MS).at(-1);
}

const SLACK_MS = 5_000;

/** Adds where a run is now to what was seen of it. */
export function withPhase(phases: Phase[], { provider, model, attempt, stage }: Running, now: number): Phase[] {
  const last = phases.at(-1);
  const here = { provider: provider ?? "", model: model ?? "", attempt, stage };
  const isSame = last && last.provider === here.provider && last.model === here.model && last.attempt === attempt && last.stage === stage;
  if (isSame) return [...phases.slice(0, -1), { ...last, until: now }];
  return [...phases, { ...here, from: last?.until ?? 0, until: now }];
}

/** Follows a run until it is over. */
export function Watch({ of, onPhases }: { of: Watched; onPhases: (add: (phases: Phase[]) => Phase[]) => void }) {
  const live = useLive();
  const running = live.running.value;
  const figures = live.figures.value;
  useEffect(() => {
    const found = runOf(running.values(), of);
    if (found) onPhases((phases) => withPhase(phases, found, Date.now() - of.sentAt));
  }, [running, figures, of.requestId]);
  return null;
}

const STAGES: Record<Running["stage"], string> = {
  reading: "the gateway reads the request",
  queued: "waiting in the line of a limit",
  waiting: "waiting for the head of the answer",
  paused: "paused before the next attempt",
  held: "waiting for the first content",
  streaming: "streaming",
};

const SHAPES: Record<Running["stage"], string> = {
  reading: "wf-gate",
  queued: "wf-gate",
  waiting: "wf-wait",
  paused: "wf-gate",
  held: "wf-think",
  streaming: "wf-flow",
};

/** The attempts so far, one row each, to scale. */
export function LiveTrace({ phases, sentAt }: { phases: Phase[]; sentAt: number }) {
  const now = useNow() - sentAt;
  const rows = rowsOf(phases);
  const end = Math.max(now, 1, phases.at(-1)?.until ?? 0);
  const at = (ms: number): string => `${((ms / end) * 100).toFixed(2)}%`;
  if (rows.length === 0) return <p class="muted">The request is on its way…</p>;
  return (
    <ol class="wf" aria-label="The route so far">
      {rows.map((row, i) => {
        const isLast = i === rows.length - 1;
        const [first] = row;
        const last = row.at(-1);
        if (!first || !last) return null;
        return (
          <li key={i} class="wf-row">
            <div class="wf-who">
              <Mark kind={isLast ? "busy" : "bad"} />
              <span class="clip">
                <b>{first.provider || "the gateway"}</b> {first.provider && <span class="faint">attempt {first.attempt}</span>}
              </span>
              <span class="help clip mono">{first.model}</span>
            </div>
            <div class="wf-track">
              <svg aria-hidden="true">
                {row.map((phase, n) => {
                  const until = isLast && n === row.length - 1 ? end : phase.until;
                  return (
                    <rect
                      key={phase.stage}
                      class={isLast ? SHAPES[phase.stage] : "wf-fail-wait"}
                      x={at(phase.from)}
                      width={at(Math.max(1, until - phase.from))}
                      y="50%"
                      height="14"
                      transform="translate(0 -7)"
                      rx="2"
                    />
                  );
                })}
              </svg>
              <span class="sr">
                {isLast
                  ? `${STAGES[last.stage]}, ${duration((end - first.from) * 1000)} so far`
                  : `failed after ${duration((last.until - first.from) * 1000)}`}
              </span>
            </div>
          </li>
        );
      })}
    </ol>
  );
}

/** Phases of one attempt belong to one row. */
export function rowsOf(phases: Phase[]): Phase[][] {
  const rows: Phase[][] = [];
  for (const phase of phases) {
    const row = rows.at(-1);
    const before = row?.[0];
    // Before the first attempt the request has no target.
    if (row && before && before.provider === phase.provider && before.model === phase.model && before.attempt === phase.attempt)
      row.push(phase);
    else rows.push([phase]);
  }
  return rows;
}

/** The present, which moves on while the page is seen. */
function useNow(): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && setNow(Date.now()), 200);
    return () => clearInterval(timer);
  }, []);
  return now;
}
