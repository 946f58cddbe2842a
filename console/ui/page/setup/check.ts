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
  /** The field that the error names; null if it names none. */
  param: string | null;
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

type Expected = {
  prefix: string;
  endpoints: string[];
  /** A provider that speaks the protocol of the request natively; null if none is known. */
  taker?: string | null;
};

/** The protocol of a data-plane path, as providers list theirs; null for other paths. */
export function protocolOf(path: string | null): string | null {
  const protocols: Record<string, string> = { "/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages" };
  if (path && /\/models\/.+:(streamG|g)enerateContent$/.test(path)) return "gemini";
  return path ? (protocols[path] ?? null) : null;
}

/** Says what went wrong with a request; null if it was answered. */
export function troubleOf(seen: Seen, record: Answered | null, { prefix, endpoints, taker }: Expected): Trouble | null {
  if (seen.status < 400) return null;
  if (seen.status === 401) return { text: keyTrouble(seen, prefix) };
  if (seen.path && /^\/v1\/v1(beta)?\//.test(seen.path))
    return { text: `It asked for ${seen.path}. Leave /v1 out of the client's address.` };
  if ((seen.status === 404 || seen.status === 403) && seen.model) {
    const text = `It asked for ${seen.model}, which this key cannot use. It may use: ${endpoints.join(", ") || "nothing"}.`;
    return { text, missing: seen.model };
  }
  if (seen.status === 404 && seen.path) return { text: `It asked for ${seen.path}, which the gateway does not have.` };
  const why = seen.code ?? record?.error ?? null;
  if (seen.status === 400 && seen.param) return { text: fieldTrouble(seen, why, taker) };
  return { text: `It was answered ${seen.status}${why ? `: ${why}` : ""}.` };
}

/** What is wrong with the key of a request. */
function keyTrouble(seen: Seen, prefix: string): string {
  const from = seen.address ? ` from ${seen.address}` : "";
  const by = seen.client ? ` (${clientName(seen.client)})` : "";
  if (seen.key_prefix === null) return `A request${from}${by} carried no key.`;
  if (seen.key_prefix !== prefix) return `A request${from}${by} carried another key: ${seen.key_prefix}…`;
  return `A request${from}${by} carried the beginning of this key, and the rest differs. Copy the key again.`;
}

/** Names the field of a rejected request, and who would take it. */
function fieldTrouble({ model, param }: Seen, why: string | null, taker: string | null | undefined): string {
  if (why !== "unsupported_parameter") return `It was answered 400${why ? `, ${why}` : ""}: the field ${param} is not right.`;
  const takers = model ? `no target of ${model}` : "no target";
  return `It sent ${param}, which ${takers} takes.${taker ? ` A target of ${taker} takes it.` : ""}`;
}
