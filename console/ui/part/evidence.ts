// The evidence that a model completes requests: a test that it answered, or an answer to a client.

import type { Evidence } from "../api/types";

type Answered = { proven_at_ms: number | null; last_answered_at_ms: number | null };

/** The time of the latest evidence; null without any. */
export function provenAt({ proven_at_ms, last_answered_at_ms }: Answered): number | null {
  return Math.max(proven_at_ms ?? 0, last_answered_at_ms ?? 0) || null;
}

/** The time at which a provider was last reached, by a check or by an answer to a client; null if it never was. */
export const reachedAt = ({ reachable, inference }: Pick<Evidence, "reachable" | "inference">): number | null =>
  Math.max(reachable.at_ms ?? 0, inference.last_answered_at_ms ?? 0) || null;

/** True if the latest evidence is an answer to a client. The answer to a test ends before the test does. */
export const isByTraffic = (of: Answered): boolean => (of.last_answered_at_ms ?? 0) > (of.proven_at_ms ?? 0);
