// The sentence about how the gateway is doing. The gateway decides; this file has the words.
import type { Change, ChangeBefore, Reason, Setup, Verdict } from "../../api/shapes";
import { href } from "../../app/router";
import { actionWords } from "../../part/action";
import { clock, count, day, duration, moment, plural, zoneName } from "../../part/format";
import { Icon, type IconName } from "../../part/icon";
import { nextStep, STEPS } from "../setup/steps";

type Sentence = { title: string; text: string };

const percent = (part: number | undefined, whole: number | undefined): string => {
  const value = whole ? ((part ?? 0) / whole) * 100 : 0;
  return `${value > 0 && value < 1 ? value.toFixed(2) : Math.round(value)} %`;
};

/** The words of one reason. A code that is not known is shown as it is. `areServed` is false if clients get errors for another reason. */
export function reasonWords(reason: Reason, areServed = true): Sentence {
  const { title, text } = conditionWords(reason, areServed);
  return { title: reason.nodes?.length ? `${title} (at ${reason.nodes.join(", ")})` : title, text };
}

function conditionWords({ code, object, figures: of }: Reason, areServed: boolean): Sentence {
  const what = object ?? "the gateway";
  const failing = areServed ? `${what} is failing, clients are being served` : `${what} is failing`;
  const words: Record<string, () => Sentence> = {
    usage_unrecorded: () => ({
      title: of.lost ? `${plural(of.lost, "usage record")} lost` : "usage is not stored",
      text: of.has_room ? "Requests are served until the journal is full." : "Requests are refused, because the journal is full.",
    }),
    draining: () => ({
      title: `${plural(of.connections ?? 0, "connection")} still open`,
      text: `What is not finished in ${duration((of.left_ms ?? 0) * 1000)} is cut.`,
    }),
    requests_failing: () => ({
      title: object
        ? `${percent(of.failed, of.requests)} of requests to ${object} get an error`
        : `${percent(of.failed, of.requests)} of requests get an error`,
      text: `${count(of.failed)} of ${plural(of.requests ?? 0, "request")} in five minutes failed for no fault of the client.`,
    }),
    no_eligible_target: () => ({
      title: `${what} has no target that may be tried`,
      text: `Each request to it is refused. It has ${plural(of.targets ?? 0, "target")}.`,
    }),
    circuit_open: () => ({
      title: failing,
      text: `Its circuit is open after ${plural(of.failures ?? 0, "failure")}; it is tried again ${of.retry_in_ms ? `in ${duration(of.retry_in_ms * 1000)}` : "with the next request"}.`,
    }),
    provider_failing: () => ({
      title: failing,
      text: `${percent(of.failed, of.attempts)} of its ${plural(of.attempts ?? 0, "attempt")} in five minutes failed.`,
    }),
    first_content_slow: () => ({
      title: "first tokens are slow",
      text: `Their median is ${duration(of.first_content_us_p50)}; in the hour before it was ${duration(of.before_us_p50)}.`,
    }),
    no_provider: () => ({ title: "no provider is connected", text: "Nothing can be served yet." }),
    no_request: () => ({ title: "no request yet", text: "The first request of a client appears here." }),
  };
  return words[code]?.() ?? { title: code.replace(/_/g, " "), text: object ?? "" };
}

/** The reasons for which clients get errors. */
const UNSERVED = ["requests_failing", "no_eligible_target"];

/** What the verdict's other reasons are called, after the first: one for each object. */
export function alsoWords({ reasons }: Verdict): string {
  const areServed = !reasons.some(({ code }) => UNSERVED.includes(code));
  const [, ...others] = reasons.filter(({ code, object }, i) => {
    const isNamedBefore = object !== null && reasons.findIndex((other) => other.object === object) < i;
    return code !== "requests" && !isNamedBefore;
  });
  return others.map((reason) => reasonWords(reason, areServed).title).join("; ");
}

/** The providers that the verdict names as failing, each once. */
export function failingProviders({ reasons }: Pick<Verdict, "reasons">): string[] {
  const named = reasons.filter(({ code }) => code === "circuit_open" || code === "provider_failing");
  return [...new Set(named.flatMap(({ object }) => object?.split("/")[0] ?? []))];
}

/** What clients noticed in the last hour, as the verdict counts it. */
export function noticed({ reasons }: Verdict): string {
  const hour = reasons.find(({ code }) => code === "requests")?.figures;
  if (!hour) return "";
  const errors = (hour.failed ?? 0) + (hour.cut ?? 0);
  const over = hour.failed_over ? ` ${count(hour.failed_over)} went to another target instead.` : "";
  return `${plural(hour.requests ?? 0, "request")} in the hour, ${plural(errors, "error")}.${over}`;
}

const KINDS: Record<Verdict["state"], ["ok" | "warn" | "bad" | "", IconName, string]> = {
  set_up: ["", "info", "Set up"],
  quiet: ["ok", "circle-check", "Quiet"],
  serving: ["ok", "circle-check", "Serving"],
  degraded: ["warn", "triangle-alert", "Degraded"],
  failing: ["bad", "octagon-x", "Failing"],
  unrecorded: ["bad", "octagon-x", "Unrecorded"],
  draining: ["warn", "power", "Stopping"],
};

/** The page about what a reason names. */
function aboutOf({ code, object }: Reason): { text: string; to: string } | null {
  if (code === "usage_unrecorded") return { text: "Open settings", to: href("/settings") };
  if (!object) return null;
  if (code === "no_eligible_target") return { text: `Open ${object}`, to: href(`/routes/${encodeURIComponent(object)}`) };
  if (code === "requests_failing") {
    const provider = object.includes("/") ? object.slice(0, object.indexOf("/")) : null;
    return {
      text: `Open ${object}`,
      to: provider ? href(`/providers/${encodeURIComponent(provider)}`) : href(`/routes/${encodeURIComponent(object)}`),
    };
  }
  return { text: `Open ${object.split("/")[0]}`, to: href(`/providers/${encodeURIComponent(object.split("/")[0] ?? object)}`) };
}

/** The requests that a reason is about. */
function requestsOf({ code, object }: Reason): string {
  const isProvider = code === "provider_failing" || code === "circuit_open";
  if (isProvider && object) return href("/requests", { attempted: object.split("/")[0], period: "1h" });
  return href("/requests", { failed: "true", period: "1h" });
}

type Props = {
  verdict: Verdict;
  setup: Setup | null;
};

/** The address of the audit record of a change. */
export const auditOf = ({ audit_id }: Change): string | undefined =>
  audit_id === null ? undefined : href("/audit", { open: String(audit_id) });

export function VerdictCard({ verdict, setup }: Props) {
  const [kind, icon, word] = KINDS[verdict.state] ?? ["", "info", verdict.state];
  const first = verdict.reasons.find(({ code }) => code !== "requests");
  const also = alsoWords(verdict);
  const isCalm = verdict.state === "quiet" || verdict.state === "serving" || verdict.state === "set_up";
  const said = first ? reasonWords(first) : null;
  const next = setup ? STEPS.find(({ id }) => id === nextStep(setup)) : undefined;
  return (
    <section class={`verdict ${kind}`} aria-label="How the gateway is doing">
      <span class="sign">
        <Icon name={icon} />
      </span>
      <div>
        <h2 class="wrap">
          {word}: {said?.title ?? (verdict.state === "quiet" ? "no request in the last hour" : noticed(verdict))}
        </h2>
        <p class="wrap">
          {!isCalm && `Since ${clock(verdict.since_ms)} ${zoneName()}. `}
          {said && `${said.text} `}
          {!isCalm && noticed(verdict)}
          {also && ` Also: ${also}.`}
          {verdict.change_before && !isCalm && <LastChange of={verdict.change_before} since={verdict.since_ms} />}
          {isCalm && next && `The next step of the set-up: ${next.title}.`}
        </p>
      </div>
      <div class="actions">
        {isCalm && next && (
          <a class="btn primary" href={href("/setup", { step: next.id })}>
            Go on with set-up
          </a>
        )}
        {!isCalm && first && <Actions of={first} />}
      </div>
    </section>
  );
}

/** A moment before `since`: its time, with the day if that is another one. */
export const momentBefore = (at: number, since: number): string => (day(at) === day(since) ? clock(at) : moment(at));

function LastChange({ of, since }: { of: ChangeBefore; since: number }) {
  return (
    <>
      {" Last change before: "}
      {momentBefore(of.at_ms, since)}, <a href={href("/audit", { open: String(of.audit_id) })}>{actionWords(of)}</a>
      {` by ${of.actor}.`}
    </>
  );
}

function Actions({ of }: { of: Reason }) {
  const about = aboutOf(of);
  return (
    <>
      {of.code !== "usage_unrecorded" && of.code !== "draining" && (
        <a class="btn" href={requestsOf(of)}>
          Show its requests
        </a>
      )}
      {about && (
        <a class="btn primary" href={about.to}>
          <span class="clip">{about.text}</span>
        </a>
      )}
    </>
  );
}
