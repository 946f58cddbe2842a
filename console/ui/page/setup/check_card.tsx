// The check of a new client: it waits for the first request with a key, and says how far the request came.
import { useEffect, useMemo, useState } from "preact/hooks";
import { gatewayOrigin } from "../../api/base";
import { call } from "../../api/client";
import { useLive } from "../../api/live";
import { search } from "../../api/objects";
import { changed } from "../../api/resource";
import type { FullRecord } from "../../api/shapes";
import type { Key, Page, Provider } from "../../api/types";
import { href } from "../../app/router";
import { clientName } from "../../part/client_name";
import { duration } from "../../part/format";
import { Mark } from "../../part/icon";
import { isLoopback } from "../connect";
import { protocolOf, type Seen, STAGES, stagesOf, troubleOf } from "./check";
import { isInside } from "./provider";

type CheckProps = { of: Key; endpoints: string[]; onAnswer?: (said: string) => void };

/** Waits for a request with the key and says how far it came. */
export function CheckCard({ of, endpoints, onAnswer }: CheckProps) {
  const { seen, isRunning, isLate } = useSeen(of.id);
  const [record, setRecord] = useState<FullRecord | null>(null);
  const answered = seen !== null && seen.status < 400;
  useEffect(() => setRecord(null), [seen]);
  // The record is stored when the answer has ended, which may take minutes.
  useEffect(() => {
    if (!seen || isRunning) return;
    let isOver = false;
    void recordOf(seen.request_id, () => isOver).then((found) => !isOver && setRecord(found));
    return () => {
      isOver = true;
    };
  }, [seen, isRunning]);
  const name = clientName(record?.client ?? seen?.client) ?? "A client";
  const said = answered && record ? `${name} got its first answer in ${duration(record.first_content_us ?? record.duration_us)}.` : "";
  useEffect(() => {
    if (!said) return;
    changed("setup");
    onAnswer?.(said);
  }, [said]);
  const taker = useTaker(seen);
  const trouble = seen ? troubleOf(seen, record, { prefix: of.prefix, endpoints, taker }) : null;
  return (
    <section class="check-card" aria-label="Check">
      <h3>Check</h3>
      <p class="help">Send a request from the client; its arrival shows here.</p>
      <ol class="check-stages">
        {stagesOf(seen, of.prefix, record).map((isThere, i) => (
          <li key={STAGES[i]} class="state">
            <Mark kind={isThere === null ? "busy" : isThere ? "ok" : i === 4 ? "off" : "bad"} />
            {STAGES[i]}
            <span class="sr">{isThere === null ? ", not yet" : isThere ? ", yes" : ", no"}</span>
          </li>
        ))}
      </ol>
      <div role="status">
        {!seen && <p class="muted">Waiting for the first request with this key…</p>}
        {!seen && isLate && (
          <p class="wrap">
            Nothing yet. Does <code>curl {gatewayOrigin()}/health</code> answer from that machine?{" "}
            {isLoopback(location.hostname) && "The gateway listens on 127.0.0.1 only."}
          </p>
        )}
        {answered && isRunning && <p class="muted">The answer has begun.</p>}
        {trouble && (
          <p class="wrap bad">
            {trouble.text}{" "}
            {trouble.missing && !trouble.missing.includes("/") && (
              <a href={href("/setup", { step: "routes", name: trouble.missing })}>Make an endpoint {trouble.missing}</a>
            )}
          </p>
        )}
        {said && (
          <p class="wrap">
            <b>{said}</b> <a href={href(`/requests/${encodeURIComponent(seen?.request_id ?? "")}`)}>See the request</a>
          </p>
        )}
      </div>
    </section>
  );
}

/** The provider that would take a field which no target of the endpoint takes: it speaks the protocol of the request natively. */
function useTaker(seen: Seen | null): string | null {
  const [taker, setTaker] = useState<string | null>(null);
  const protocol = seen?.code === "unsupported_parameter" ? protocolOf(seen.path) : null;
  useEffect(() => {
    setTaker(null);
    if (protocol === null) return;
    let isOver = false;
    const takes = (one: Provider): boolean => !isInside(one) && one.protocols.some((name) => name === protocol);
    search<Provider>("providers", { state: "ready" }, takes).then(
      ({ rows }) => !isOver && setTaker(rows[0]?.id ?? null),
      () => undefined,
    );
    return () => {
      isOver = true;
    };
  }, [protocol]);
  return taker;
}

/** Returns the last answered request with a key, as soon as its record is stored. */
async function earlierOf(key: string, isOver: () => boolean): Promise<Seen | null> {
  const path = `requests?key=${encodeURIComponent(key)}&outcome=completed&limit=1`;
  const found = await untilFound(() => call<Page<FullRecord>>("GET", path).then(({ data }) => data.data[0] ?? null), isOver);
  return found && seenOf(found);
}

/** Reads the record of a request, which is stored a moment after its end. */
const recordOf = (id: string, isOver: () => boolean): Promise<FullRecord | null> =>
  untilFound(() => call<FullRecord>("GET", `requests/${encodeURIComponent(id)}`).then(({ data }) => data), isOver);

/** Asks until there is an answer, which takes a moment, or until it is over. */
async function untilFound<T>(ask: () => Promise<T | null>, isOver: () => boolean): Promise<T | null> {
  for (let tries = 0; tries < RECORD_TRIES && !isOver(); tries += 1) {
    const found = await ask().catch(() => null);
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  return null;
}

/** The request that matters: the last one that was answered, else the newest; and whether none has come for long. */
function useSeen(key: string): { seen: Seen | null; isRunning: boolean; isLate: boolean } {
  const live = useLive(key);
  const [earlier, setEarlier] = useState<Seen | null>(null);
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), LATE_MS);
    return () => clearTimeout(timer);
  }, [key]);
  // The stream has what comes from its first frame on. The client may have been faster, and its record is stored a moment later.
  const isWaiting = live.state.value === "waiting";
  useEffect(() => {
    if (isWaiting) return;
    let isOver = false;
    void earlierOf(key, () => isOver).then((found) => !isOver && setEarlier(found));
    return () => {
      isOver = true;
    };
  }, [key, isWaiting]);
  const all = live.seen.value;
  const seen = useMemo(() => all.findLast(({ status }) => status < 400) ?? earlier ?? all.at(-1) ?? null, [all, earlier]);
  return { seen, isRunning: seen !== null && live.running.value.has(seen.request_id), isLate };
}

const seenOf = (record: FullRecord): Seen => ({
  address: null,
  client: record.client ?? null,
  path: null,
  status: record.status,
  code: record.error,
  param: null,
  key_prefix: null,
  model: record.selector,
  request_id: record.request_id,
});

/** A record is stored a moment after the request has ended. */
const POLL_MS = 500;
const LATE_MS = 30_000;
const RECORD_TRIES = 10;
