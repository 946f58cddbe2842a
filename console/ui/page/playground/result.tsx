// What came back from a run: the answer, the route that it took, both sides of the gateway, and the raw stream.
import { useEffect, useState } from "preact/hooks";
import { useResource } from "../../api/resource";
import type { FullRecord } from "../../api/shapes";
import type { RecordedExchange, RecordedSide } from "../../api/types";
import { href } from "../../app/router";
import { CodeText, linesOf, RecordedBytes, titleOf } from "../../part/exchange";
import { Loaded } from "../../part/feedback";
import { count, dollars, duration } from "../../part/format";
import { Card } from "../../part/page";
import { Waterfall } from "../../part/waterfall";
import { inputOf, outputOf } from "../requests";
import { rowsOf } from "./bytes";
import { LiveTrace, type Phase, Watch } from "./live_trace";

/** A run as far as it has come. */
export type Outcome = {
  requestId: string | null;
  status: number | null;
  text: string;
  images: string[];
  /** The address of a sound, and its type. */
  audio: string | null;
  /** The answer as it came, if it is not a stream. */
  raw: string;
  error: string | null;
  isOver: boolean;
  /** The selector that was sent, and when. */
  selector: string;
  sentAt: number;
};

const TABS = ["Answer", "Route trace", "What was sent", "Raw stream"] as const;

export function Result({ of, title = "Result" }: { of: Outcome; title?: string }) {
  const [tab, setTab] = useState<(typeof TABS)[number]>("Answer");
  const [phases, setPhases] = useState<Phase[]>([]);
  useEffect(() => setPhases([]), [of.sentAt]);
  return (
    <Card
      title={title}
      aside={
        <span class="seg" role="group" aria-label={`Show of ${title}`}>
          {TABS.map((name) => (
            <button key={name} type="button" aria-pressed={name === tab} onClick={() => setTab(name)}>
              {name}
            </button>
          ))}
        </span>
      }
      bare
    >
      {!of.isOver && <Watch of={of} onPhases={setPhases} />}
      <div class="result">
        {tab === "Answer" && <AnswerView of={of} />}
        {tab === "Route trace" && !of.isOver && <LiveTrace phases={phases} sentAt={of.sentAt} />}
        {tab !== "Answer" && !(tab === "Route trace" && !of.isOver) && <Kept of={of} tab={tab} />}
      </div>
    </Card>
  );
}

function AnswerView({ of }: { of: Outcome }) {
  return (
    <>
      {of.error && (
        <p class="alert bad wrap" role="alert">
          {of.status !== null && `${of.status}: `}
          {of.error}
        </p>
      )}
      {of.text && <p class="answer wrap">{of.text}</p>}
      {of.images.map((address) => (
        <img key={address.slice(-40)} class="answer-image" src={address} alt="The model's output" />
      ))}
      {/* biome-ignore lint/a11y/useMediaCaption: a model's speech; its text is the request */}
      {of.audio && <audio controls src={of.audio} aria-label="The model's speech" />}
      {!of.text && !of.error && of.images.length === 0 && !of.audio && of.isOver && (
        <CodeText text={of.raw || "The answer is empty."} label="Answer" />
      )}
      {!of.isOver && <p class="muted">Waiting…</p>}
      {of.isOver && of.requestId && <Spent key={of.requestId} id={of.requestId} />}
      <p class="sr" role="status">
        {of.isOver && !of.error ? "Answered" : ""}
      </p>
    </>
  );
}

/** What an answer took: its time, its tokens and its cost. */
function Spent({ id }: { id: string }) {
  const record = useResource<FullRecord>(`requests/${encodeURIComponent(id)}`).data.value;
  if (!record) return null;
  const parts = [
    record.provider && `${record.provider}/${record.model}`,
    record.first_content_us !== null && `first token ${duration(record.first_content_us)}`,
    `${duration(record.duration_us)} in all`,
    record.provenance !== "none" && `${count(inputOf(record))} tokens in, ${count(outputOf(record))} out`,
    record.cost_micro_usd === null ? "price unknown" : dollars(record.cost_micro_usd),
  ];
  return (
    <p class="help wrap">
      {parts.filter(Boolean).join(" · ")} · <a href={href(`/requests/${encodeURIComponent(id)}`)}>See the request</a>
    </p>
  );
}

/** What the gateway keeps of a run once it is over. */
function Kept({ of, tab }: { of: Outcome; tab: string }) {
  if (!of.isOver) return <p class="muted">It is there when the answer has ended.</p>;
  if (!of.requestId) return <p class="muted">The request did not reach the data plane.</p>;
  return tab === "Route trace" ? <Trace id={of.requestId} /> : <Exchange id={of.requestId} isRaw={tab === "Raw stream"} />;
}

function Trace({ id }: { id: string }) {
  const record = useResource<FullRecord>(`requests/${encodeURIComponent(id)}`);
  return (
    <Loaded resource={record} part missing={<p class="muted">It was refused before it was admitted: there is no record of it.</p>}>
      {(data) => (
        <>
          {data.trace?.length ? <Waterfall record={data} /> : <p class="muted">No target was tried.</p>}
          <p>
            <a href={href(`/requests/${encodeURIComponent(id)}`)}>See the request</a>
          </p>
        </>
      )}
    </Loaded>
  );
}

function Exchange({ id, isRaw }: { id: string; isRaw: boolean }) {
  const exchange = useResource<RecordedExchange>(`run/${encodeURIComponent(id)}`);
  return (
    <Loaded resource={exchange} part missing={<p class="muted">The latest 16 runs are kept for ten minutes. This one is gone.</p>}>
      {({ sides }) => {
        const [client, ...more] = sides.filter(({ side }) => side === (isRaw ? "client_response" : "client_request"));
        const upstream = sides.filter(({ side }) => side === (isRaw ? "upstream_response" : "upstream_request"));
        const shown = [...upstream, ...(isRaw ? [client, ...more] : [])].filter((side) => side !== undefined);
        if (isRaw) return shown.map((side) => <RecordedBytes key={titleOf(side)} of={side} isRaw />);
        if (!client) return <p class="muted">Nothing was recorded.</p>;
        if (upstream.length === 0) return <Compared left={client} right={null} />;
        return upstream.map((side) => <Compared key={titleOf(side)} left={client} right={side} />);
      }}
    </Loaded>
  );
}

/** The request as the client made it, beside what the gateway made of it; lines that differ are marked. */
function Compared({ left, right }: { left: RecordedSide; right: RecordedSide | null }) {
  const lines = linesOf(left);
  const rows = right ? rowsOf(lines, linesOf(right)) : lines.map((line) => ({ left: line, right: null, same: true }));
  return (
    <div class="table-wrap" role="group" aria-label={right ? titleOf(right) : titleOf(left)} tabIndex={0}>
      <table class="table compared">
        <thead>
          <tr>
            <th scope="col">{titleOf(left)}</th>
            <th scope="col">{right ? titleOf(right) : "No upstream: it was answered inside the gateway"}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ left, right, same }, i) => (
            <tr key={i} class={same ? undefined : "changed"}>
              <td class="mono">{left !== null && (same ? left : <del class="diff-del">{left}</del>)}</td>
              <td class="mono">{right !== null && (same ? right : <ins class="diff-ins">{right}</ins>)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
