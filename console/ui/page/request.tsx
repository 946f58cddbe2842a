// One request: how it ended, where its time went, what it cost.
import { at, may } from "../api/client";
import { plainRequest } from "../api/explain";
import { useResource } from "../api/resource";
import type { FullRecord, Points } from "../api/shapes";
import type { Quota } from "../api/types";
import { href, param, setParams } from "../app/router";
import { clientName } from "../part/client_name";
import { Copyable, CopyButton } from "../part/copy";
import { Differences, showDifferences } from "../part/differences";
import { Empty, Loaded } from "../part/feedback";
import { Figure, Figures } from "../part/figures";
import { ago, bytes, capital, clock, count, day, dollars, duration, nodeName, zoneName } from "../part/format";
import { Mark } from "../part/icon";
import { Ref } from "../part/links";
import { outcomeOf } from "../part/outcome";
import { Card, Facts, Page } from "../part/page";
import { Waterfall } from "../part/waterfall";
import { ExplainAgain } from "./explain_again";
import { ContentCard } from "./request/content";
import { gotWords, headlineOf, sentenceOf, speedOf } from "./request/headline";
import { SessionCard, sessionWords, useSession } from "./request/session";
import { TokensCard } from "./request/tokens";
import { ALL_TIME, inputOf, outputOf } from "./requests";
import { Neighbours } from "./requests/neighbours";

export function RequestPage({ id }: { id: string }) {
  const request = useResource<FullRecord>(`requests/${encodeURIComponent(id)}`);
  return (
    <Loaded
      resource={request}
      missing={
        <Empty
          page
          icon="list"
          title="There is no record of such a request"
          action={
            <a class="btn" href={href("/requests")}>
              All requests
            </a>
          }
        >
          <span class="mono wrap">{id}</span> was refused before it was admitted, is still running, or its record was deleted.
        </Empty>
      }
    >
      {(data) => <One of={data} />}
    </Loaded>
  );
}

function One({ of }: { of: FullRecord }) {
  const [kind, word] = outcomeOf(of);
  const lost = lostOf(of);
  const session = useSession(of).data.value;
  const isAfterFailover = of.outcome === "completed" && (of.failed_over ?? (of.trace?.length ?? 0) > 1);
  const speed = count(speedOf(of, outputOf(of)));
  const quota = useResource<Quota>(of.refused_by && may("administer") ? at("quotas", of.refused_by) : null).data.value;
  return (
    <Page
      title={headlineOf(of, quota)}
      lead={
        <>
          <span class="wrap">{sentenceOf(of)}</span>
          {of.message && (
            <span class="got wrap">
              {gotWords(of)}: <q>{of.message}</q>
            </span>
          )}
        </>
      }
      actions={
        <>
          <Neighbours of={of} />
          <CopyButton text={`${location.origin}${href(`/requests/${encodeURIComponent(of.request_id)}`)}`} label="Copy link" />
          {may("administer") && of.selector && plainRequest(of.operation, of.selector) && (
            <button type="button" class="btn" onClick={() => setParams({ explain: "1" })}>
              Explain again
            </button>
          )}
        </>
      }
    >
      <Figures label="Figures">
        <div class="figure">
          <dt>Outcome</dt>
          <dd class="value">
            <span class="state outcome">
              <Mark kind={kind} />
              <b>{capital(word)}</b>
            </span>
          </dd>
          <dd class="sub">
            HTTP {of.status}
            {isAfterFailover && <span class="warn"> · after failover</span>}
            {of.error && <span class="bad"> · {of.error}</span>}
          </dd>
        </div>
        <Figure
          name="First token"
          value={duration(of.first_content_us)}
          sub={lost ? `${duration(lost)} lost to failed attempts and pauses` : of.provider ? "no attempt failed" : "no target was tried"}
        />
        <Figure
          name="Total"
          value={duration(of.duration_us)}
          sub={`${of.stream ? "streamed" : "in one piece"}${of.gateway_us == null ? "" : `, ${duration(of.gateway_us)} of it the gateway’s own`}`}
        />
        <Figure
          name="Speed"
          value={speed}
          sub={of.silence_us_max == null ? "output tokens a second" : `tokens a second, longest silence ${duration(of.silence_us_max)}`}
        />
        <Figure
          name="Cost"
          value={dollars(of.cost_micro_usd)}
          sub={
            of.cost_micro_usd === null
              ? "price unknown"
              : of.lost_micro_usd
                ? `+ ${dollars(of.lost_micro_usd)} of failed attempts`
                : cacheWords(of)
          }
        />
      </Figures>
      <div class="cols main-side">
        <div class="page-stack">
          <Card title="What happened" aside={<span class="faint">times from the arrival of the request</span>} bare>
            {of.trace?.length ? <Waterfall record={of} /> : <p class="card-body muted">No target was tried.</p>}
          </Card>
          <TokensCard of={of} />
          {session && <SessionCard of={of} series={session} />}
          <ContentCard id={of.request_id} selector={of.selector} />
        </div>
        <FactsCard of={of} session={session?.groups[0]?.points} />
      </div>
      <Differences dropped={of.dropped} />
      {may("administer") && param("explain") && <ExplainAgain of={of} onClose={() => setParams({ explain: null })} />}
    </Page>
  );
}

/** `97 % of its input from cache`. */
function cacheWords(of: FullRecord): string {
  const cached = of.tokens.cache_read ?? 0;
  if (cached) return `${Math.round((cached / inputOf(of)) * 100)} % of its input from cache`;
  return of.cost_micro_usd === 0 && inputOf(of) === 0 ? "nothing was used" : "by known prices";
}

/** The time before the attempt that answered: failed attempts, and the pauses between them where they were recorded. */
export function lostOf({ trace = [] }: FullRecord): number {
  const failed = trace.filter((step) => step.result !== "served" && step.spent_us !== undefined);
  const served = trace.find(({ result }) => result === "served");
  const first = failed[0]?.start_us;
  if (served?.start_us !== undefined && first !== undefined) return served.start_us - first;
  return failed.reduce((sum, step) => sum + (step.spent_us ?? 0), 0);
}

function FactsCard({ of, session }: { of: FullRecord; session: Points | undefined }) {
  const tags = Object.entries(of.tags);
  return (
    <Card bare>
      <Facts
        rows={[
          ["Request", <Copyable key="r" text={of.request_id} label="the request id" clip />],
          ["Began", `${day(of.started_at_ms)} ${clock(of.started_at_ms, "ms")} ${zoneName()}, ${ago(of.started_at_ms)}`],
        ]}
      />
      <Facts
        rows={[
          ["Key", of.key.startsWith("key_") ? <Ref key="k" kind="key" id={of.key} name={of.key_name} /> : of.key],
          ["Project", of.project && <Ref key="p" kind="project" id={of.project} name={of.project_name} />],
          ["Acts as", of.principal && <Ref key="h" kind="human" id={of.principal} name={of.principal_name} />],
          ["Client", clientName(of.client)],
          [
            "Session",
            of.session && (
              <a key="s" href={href("/requests", { session: of.session, period: ALL_TIME })}>
                {session ? sessionWords(session) : "Its requests"}
              </a>
            ),
          ],
          ["End user", of.end_user && <span class="mono clip">{of.end_user}</span>],
          ["Tags", tags.length ? tags.map(([name, value]) => `${name}=${value}`).join(", ") : null],
        ]}
      />
      <Facts
        rows={[
          ["Asked", `${of.operation.replace(/_/g, " ")}${of.stream ? ", streamed" : ""}`],
          [
            "Selector",
            <span key="s" class="mono wrap">
              {of.selector}
            </span>,
          ],
          ["Provider", of.provider && <Ref key="v" kind="provider" id={of.provider} name={of.provider} />],
          ["Model", of.model && <span class="mono wrap">{of.model}</span>],
          ["Protocol", of.protocol && <Protocol key="d" of={of} />],
          [
            "Left out",
            of.dropped?.length ? (
              <span key="l" class="mono wrap">
                {of.dropped.join(", ")}
              </span>
            ) : null,
          ],
          ["Chosen by", of.chosen_by && `${of.chosen_by} (order: ${of.order?.replace("_", " ")})`],
          ["Tier", of.tier],
          [
            "Finish",
            of.finish && (
              <span key="f" class="mono">
                {of.finish}
              </span>
            ),
          ],
          ["In, out", of.bytes_in == null && of.bytes_out == null ? null : `${bytes(of.bytes_in)}, ${bytes(of.bytes_out)}`],
          ["Node", of.node && nodeName(of.node)],
          ["Refused by", of.refused_by && <a href={href("/quotas", { edit: of.refused_by })}>a limit</a>],
          ["Cancelled by", of.cancelled_by && (of.cancelled_by === "client" ? "the client" : "an administrator")],
          ["Upstream’s id", of.upstream_id && <Copyable key="u" text={of.upstream_id} label="the upstream's id" clip />],
        ]}
      />
    </Card>
  );
}

/** The protocol that the client spoke, and the target's where it is another one. */
function Protocol({ of }: { of: FullRecord }) {
  return (
    <>
      {of.protocol}
      {of.adapted && (
        <>
          , sent as {of.adapted}{" "}
          <button type="button" class="link" onClick={() => showDifferences(of.protocol ?? "", of.adapted ?? "")}>
            What changed?
          </button>
        </>
      )}
    </>
  );
}
