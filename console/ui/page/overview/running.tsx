// The requests that are being served: silent streams first, each with a button that ends it. The list keeps its order while the
// pointer or the focus is in it.
import { useRef, useState } from "preact/hooks";
import { call, Fault } from "../../api/client";
import type { Live } from "../../api/live";
import type { Running } from "../../api/shapes";
import { clientName } from "../../part/client_name";
import { Confirm } from "../../part/dialog";
import { notify } from "../../part/feedback";
import { count, duration, nodeName, short } from "../../part/format";
import { Icon, Mark, type MarkKind } from "../../part/icon";
import { Card } from "../../part/page";

/** A stream without a piece for this long is silent. */
const SILENT_MS = 10_000;
const SHOWN_MAX = 8;

/** The time since the last piece of a stream in milliseconds; 0 before the first one. */
export const silenceOf = ({ stage, last_piece_at_ms }: Running, now: number): number =>
  stage === "streaming" && last_piece_at_ms !== null ? Math.max(0, now - last_piece_at_ms) : 0;

/** Silent streams first, the longest silence on top; then the oldest requests. */
export function ordered(all: Running[], now: number): Running[] {
  const silence = (of: Running): number => (silenceOf(of, now) >= SILENT_MS ? silenceOf(of, now) : 0);
  return [...all].sort((a, b) => silence(b) - silence(a) || a.started_at_ms - b.started_at_ms);
}

const WORDS: Record<Running["stage"], string> = {
  reading: "Reading the request",
  queued: "In the line of a limit",
  waiting: "Waiting",
  paused: "Pausing before a retry",
  held: "Held back",
  streaming: "Streaming",
};

/** The state of a running request: its mark, its word and what explains it. */
export function stateOf(of: Running, now: number): [MarkKind, string, string] {
  const silence = silenceOf(of, now);
  if (silence >= SILENT_MS) return ["warn", `Silent ${Math.floor(silence / 1000)} s`, `after ${count(of.output_tokens_estimate)} tokens`];
  const again = of.attempt > 1 ? `, attempt ${of.attempt}` : "";
  if (of.stage !== "streaming") return ["off", WORDS[of.stage], of.provider ? `${of.provider}${again}` : ""];
  const seconds = Math.max(1, (now - of.started_at_ms) / 1000);
  return ["busy", WORDS.streaming, `${short(of.output_tokens_estimate / seconds)} tokens/s`];
}

/** The node that runs a request; nothing where there is one gateway. */
export const nodeWords = ({ node }: Pick<Running, "node">): string => (node ? `at ${nodeName(node)}` : "");

type Props = { live: Live; names: Map<string, string>; now: number };

export function RunningCard({ live, names, now }: Props) {
  const [isHeld, hold] = useState(false);
  const [ending, end] = useState<Running | null>(null);
  const kept = useRef<string[]>([]);
  const running = live.running.value;
  const sorted = ordered([...running.values()], now);
  if (!isHeld) kept.current = sorted.slice(0, SHOWN_MAX).map(({ request_id }) => request_id);
  const rows = kept.current.map((id) => running.get(id)).filter((one) => one !== undefined);
  const nameOf = ({ key }: Running): string => names.get(key) ?? key;
  const total = running.size + live.more.value;
  const waiting = isHeld ? sorted.slice(0, SHOWN_MAX).filter(({ request_id }) => !kept.current.includes(request_id)).length : 0;
  return (
    <Card title="Running now" aside={<span class="tag num">{count(total)}</span>} bare>
      {rows.length === 0 ? (
        <p class="card-body muted">No request is running.</p>
      ) : (
        <div
          class="table-wrap"
          role="group"
          aria-label="Running requests"
          tabIndex={0}
          onPointerEnter={() => hold(true)}
          onPointerLeave={() => hold(false)}
          onFocusIn={() => hold(true)}
          onFocusOut={(event) => hold(event.currentTarget.contains(event.relatedTarget as Node | null))}
        >
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Key</th>
                <th scope="col">Stage</th>
                <th scope="col" class="num">
                  Age
                </th>
                <th scope="col">
                  <span class="sr">Cancel</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map((one) => (
                <Row key={one.request_id} of={one} name={nameOf(one)} now={now} onCancel={() => end(one)} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {(waiting > 0 || total > rows.length) && (
        <div class="table-foot">
          <span>{waiting > 0 ? `${waiting} new` : `${count(total - rows.length)} more`}</span>
        </div>
      )}
      {ending && <Cancel of={ending} name={nameOf(ending)} onClose={() => end(null)} />}
    </Card>
  );
}

function Row({ of, name, now, onCancel }: { of: Running; name: string; now: number; onCancel: () => void }) {
  const [kind, word, note] = stateOf(of, now);
  return (
    <tr>
      <td>
        <div class="two-line narrow-cell">
          <b class="clip">{name}</b>
          <span class="help clip">{[of.selector, clientName(of.client), nodeWords(of)].filter(Boolean).join(" · ")}</span>
        </div>
      </td>
      <td>
        <div class="two-line narrow-cell">
          <span class="state">
            <Mark kind={kind} />
            {word}
          </span>
          <span class="help num clip" title={note}>
            {note}
          </span>
        </div>
      </td>
      <td class="num">{duration(Math.max(0, now - of.started_at_ms) * 1000)}</td>
      <td class="num">
        <button
          type="button"
          class="btn plain square small"
          aria-label={`Cancel the request of ${name} to ${of.selector}`}
          onClick={onCancel}
        >
          <Icon name="x" small />
        </button>
      </td>
    </tr>
  );
}

function Cancel({ of, name, onClose }: { of: Running; name: string; onClose: () => void }) {
  const run = async (): Promise<void> => {
    try {
      await call("POST", `requests/${encodeURIComponent(of.request_id)}/cancel`, { body: {} });
      notify("The request was cancelled");
    } catch (error) {
      if (!(error instanceof Fault && error.status === 404)) throw error;
      notify("The request had ended already");
    }
  };
  return (
    <Confirm title={`Cancel this request of ${name}?`} action="Cancel request" run={run} onClose={onClose}>
      <p>The client gets an error; what was relayed is billed.</p>
    </Confirm>
  );
}
