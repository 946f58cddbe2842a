// What the check of a new client has seen, how far the newest request came, and what went wrong with it.

import { clientName } from "../../part/client_name";

/** A request that reached the gateway with the watched key, or that was refused before its key was known. */
export type Seen = {
  address: string | null;
  /** The family and version of the client; null or empty where it is not known. */
  client: string | null;
  path: string | null;
  status: number;
  code: string | null;
  /** The beginning of the key that the request carried. */
  key_prefix: string | null;
  model: string | null;
  request_id: string;
};

/** What the record of a request adds. */
export type Answered = { stream: boolean; first_content_us: number | null; error: string | null };

export const STAGES = ["Arrived", "Key accepted", "Model found", "Answered", "Streamed"] as const;

/** Returns for each stage whether the request came so far; null while that is not known. */
export function stagesOf(seen: Seen | null, prefix: string, record: Answered | null): (boolean | null)[] {
  if (!seen) return STAGES.map(() => null);
  const isAccepted = seen.status !== 401 && (seen.key_prefix === null || seen.key_prefix === prefix);
  const isFound = isAccepted && seen.status !== 404 && seen.status !== 403;
  const isAnswered = isFound && seen.status < 400;
  const isStreamed = isAnswered ? (record?.stream ?? null) : false;
  return [true, isAccepted, isFound, isAnswered, isStreamed];
}

/** Something that went wrong, and the name of the endpoint that would solve it. */
export type Trouble = { text: string; missing?: string };

type Expected = { prefix: string; endpoints: string[] };

/** Says what went wrong with a request; null if it was answered. */
export function troubleOf(seen: Seen, record: Answered | null, { prefix, endpoints }: Expected): Trouble | null {
  if (seen.status < 400) return null;
  if (seen.status === 401) {
    const from = seen.address ? ` from ${seen.address}` : "";
    const by = seen.client ? ` (${clientName(seen.client)})` : "";
    if (seen.key_prefix === null) return { text: `A request${from}${by} carried no key.` };
    if (seen.key_prefix !== prefix) return { text: `A request${from}${by} carried another key: ${seen.key_prefix}…` };
    return { text: `A request${from}${by} carried the beginning of this key, and the rest differs. Copy the key again.` };
  }
  if (seen.path?.startsWith("/v1/v1/")) return { text: `It asked for ${seen.path}. Leave /v1 out of the client's address.` };
  if ((seen.status === 404 || seen.status === 403) && seen.model) {
    const text = `It asked for ${seen.model}, which this key cannot use. It may use: ${endpoints.join(", ") || "nothing"}.`;
    return { text, missing: seen.model };
  }
  if (seen.status === 404 && seen.path) return { text: `It asked for ${seen.path}, which the gateway does not have.` };
  const why = record?.error ?? seen.code;
  return { text: `It was answered ${seen.status}${why ? `: ${why}` : ""}.` };
}
