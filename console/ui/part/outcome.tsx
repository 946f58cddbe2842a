// How exchanges and attempts ended, in words and shapes.
import type { FullRecord } from "../api/shapes";
import type { RequestRecord, Step } from "../api/types";
import { UNKNOWN } from "./format";
import { Mark, type MarkKind } from "./icon";

const OUTCOMES: Record<RequestRecord["outcome"], [MarkKind, string]> = {
  completed: ["ok", "completed"],
  failed: ["failed", "failed"],
  cancelled: ["off", "client left"],
  cut: ["cut", "cut off"],
  interrupted: ["warn", "interrupted"],
};

export const outcomeOf = ({ outcome }: Pick<RequestRecord, "outcome">): [MarkKind, string] => OUTCOMES[outcome] ?? ["off", outcome];

/** Why a target was skipped. */
const PASSED: Record<string, string> = {
  waited: "the request waited in the line of a limit",
  circuit_open: "its circuit is open",
  resting: "it rests because of a rate limit",
  too_long: "the request is probably too long for it, so it comes last",
  no_vision: "it takes no images",
  no_tools: "it cannot call tools",
  no_dialect: "it does not speak the protocol",
  unsupported: "its protocol cannot say this request",
  elsewhere: "the request refers to something another target made",
  not_ready: "it is not ready",
  not_allowed: "the key or its project may not use it",
  private: "it is private to another human",
  no_price: "its price is not known, and the key has a limit on cost",
  over_quota: "a limit is used up",
};

/** The same in one or two words, for a cell of a table. */
const PASSED_SHORT: Record<string, string> = {
  waited: "waited",
  circuit_open: "circuit open",
  resting: "resting",
  too_long: "too long",
  no_vision: "no images",
  no_tools: "no tools",
  no_dialect: "other protocol",
  unsupported: "unsupported",
  elsewhere: "made elsewhere",
  not_ready: "not ready",
  not_allowed: "not allowed",
  private: "private",
  no_price: "no price",
  over_quota: "limit used up",
};

export const passedShort = (reason: string): string => PASSED_SHORT[reason] ?? reason.replace(/_/g, " ");

/** Why an attempt failed. */
const FAILED: Record<string, string> = {
  unreachable: "could not be reached",
  no_socket: "the gateway had no socket left",
  address_refused: "its address is never dialled",
  timed_out: "did not answer in time",
  invalid: "answered something invalid",
  stream_error: "sent an error before any content",
  stream_ended: "ended before any content",
  cancelled: "the client left",
  budget_exhausted: "the time for failover ran out",
};

/** The results that a step of a trace can have, but for those that every request has. */
export const STEP_RESULTS = ["status", ...Object.keys(FAILED), ...Object.keys(PASSED)];

export const isPassedOver = ({ result }: Pick<Step, "result">): boolean => result in PASSED;

/** The reasons for skipping a target that stand at its place among the attempts. */
const ON_THE_WAY = ["waited", "circuit_open", "resting", "over_quota", "unsupported"];

/**
 * Steps as the request met them. Targets that cannot serve such a request at all are recorded before the first attempt, whatever
 * their place in the endpoint: they come last, so that none looks like a target that was tried first.
 */
export function asMet<S extends Pick<Step, "result">>(steps: S[]): S[] {
  const isUnsuited = (step: S): boolean => isPassedOver(step) && !ON_THE_WAY.includes(step.result);
  return [...steps.filter((step) => !isUnsuited(step)), ...steps.filter(isUnsuited)];
}

/** What happened at a target, in words. */
export function stepWords(step: Step): string {
  if (step.result === "served") return "answered";
  if (step.result === "status") return `answered ${step.status ?? "an error"}`;
  return PASSED[step.result] ?? FAILED[step.result] ?? step.result;
}

const MARKS_MAX = 5;

/** The mark of a step. The answer of a request that was cut off is no success. */
export function markOf(step: Pick<Step, "result">, outcome: RequestRecord["outcome"]): MarkKind {
  if (step.result !== "served") return isPassedOver(step) ? "off" : "failed";
  return outcome === "cut" ? "cut" : "ok";
}

/** The last attempts of a request as marks: answered, cut off, failed, skipped. Their words are spoken. */
export function AttemptMarks({ of }: { of: Pick<FullRecord, "results" | "outcome"> }) {
  if (!of.results) return <span class="faint">{UNKNOWN}</span>;
  if (of.results.length === 0) return <span class="faint">none</span>;
  const steps = asMet(of.results.map((result) => ({ result, provider: "", model: "" })));
  const shown = steps.slice(-MARKS_MAX);
  const words = steps.map((step) => (markOf(step, of.outcome) === "cut" ? "was cut off" : stepWords(step))).join(", ");
  return (
    <span class="marks" title={words}>
      {steps.length > shown.length && <span class="faint">+{steps.length - shown.length}</span>}
      {shown.map((step, i) => (
        <Mark key={i} kind={markOf(step, of.outcome)} />
      ))}
      <span class="sr">{words}</span>
    </span>
  );
}
