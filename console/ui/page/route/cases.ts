// The requests that the matrix asks about, and what the gateway's answer means for each target.
import { type ExplainedCase, plainRequest } from "../../api/explain";
import type { ExplainCase, Target } from "../../api/types";
import { passedShort, stepWords } from "../../part/outcome";
import { sameTarget } from "../routes";

/** Operations that go to the first target of an endpoint alone. */
export const FIRST_ONLY: Record<string, string> = {
  embeddings: "Embeddings",
  speech: "Speech",
  transcription: "Transcription",
  images: "Image generation",
  videos: "Video",
};

/** A transparent picture of one pixel. */
const PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=";

/** The requests to ask about, named as the matrix does: those of each protocol first. */
export function casesFor(model: string, used: string[], keys: string[]): ExplainCase[] {
  const plain = (name: string, operation: string): ExplainCase[] => {
    const request = plainRequest(operation, model);
    return request ? [{ name, ...request }] : [];
  };
  const parts = [
    { type: "text", text: "What is this?" },
    { type: "image_url", image_url: { url: PIXEL } },
  ];
  const [chat] = plain("", "chat_completions");
  return [
    ...plain(TEXTS[0], "chat_completions"),
    ...plain(TEXTS[1], "messages"),
    ...plain(TEXTS[2], "responses"),
    { name: "Images", path: "/v1/chat/completions", body: { model, messages: [{ role: "user", content: parts }] } },
    { name: "Responses that keep state", path: "/v1/responses", body: { model, input: "Say hello.", store: true } },
    ...used.flatMap((operation) => plain(FIRST_ONLY[operation] ?? operation, operation)),
    ...keys.flatMap((key_id) => (chat ? [{ ...chat, name: key_id, key_id }] : [])),
  ];
}

const TEXTS = ["Text through Chat", "Text through Messages", "Text through Responses"] as const;

/** What happens to a request at one target. `short` is null if the target serves; `adapted` are the protocols of an adaptation. */
export type Cell = { short: string | null; words: string; adapted?: [client: string, target: string] };

export function cellOf(of: ExplainedCase, target: Target): Cell {
  const candidate = of.candidates.find((other) => sameTarget(other, target));
  const [protocol] = of.needs;
  if (candidate?.adapted && protocol)
    return { short: null, words: `serves, adapted to ${candidate.adapted}`, adapted: [protocol, candidate.adapted] };
  if (candidate) return { short: null, words: "serves" };
  const passed = of.passed_over.find((other) => sameTarget(other, target));
  if (passed) {
    const words = stepWords({ ...target, result: passed.reason });
    return passed.param
      ? { short: `no ${passed.param}`, words: `${words}: ${passed.param}` }
      : { short: passedShort(passed.reason), words };
  }
  if (of.refusal) return { short: "refused", words: of.refusal.message };
  return { short: "never used", words: "these requests go to the first target alone, or the provider is not in use" };
}

export type Row = { name: string; cells: Cell[]; refusal: string | null };

/** The rows of the matrix. Protocols that fare alike share one row. */
export function rowsOf(cases: ExplainedCase[], targets: Target[]): Row[] {
  const rows = cases.map((of) => ({
    name: of.name,
    cells: targets.map((target) => cellOf(of, target)),
    refusal: of.candidates.length ? null : (of.refusal?.message ?? null),
  }));
  const texts = rows.slice(0, TEXTS.length);
  const [first] = texts;
  const isAlike = texts.length === TEXTS.length && texts.every(({ cells }) => JSON.stringify(cells) === JSON.stringify(first?.cells));
  return first && isAlike ? [{ ...first, name: "Text, any protocol" }, ...rows.slice(TEXTS.length)] : rows;
}
