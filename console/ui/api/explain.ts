// Which targets would serve requests, asked of the gateway. Nothing is sent to an upstream.
import { useEffect, useState } from "preact/hooks";
import { call } from "./client";
import type { DraftEndpoint, ExplainCase, ExplainFault, Target } from "./types";

/** The attempts at one target under assumed faults. Times are in milliseconds since the request. */
export type Rehearsed = {
  target: Target;
  /** 0 for a target whose circuit has opened. */
  attempts: number;
  result: string;
  /** The assumed status; null if none is assumed. */
  status: number | null;
  starts_at_ms: number;
  ends_at_ms: number;
};

/** The plan of one request. */
export type Explained = {
  /** The targets in the order of the attempts. */
  candidates: Target[];
  passed_over: (Target & { reason: string; wait_ms?: number; param?: string })[];
  /** The error that the client would get; null if a target may be tried. */
  refusal: { status: number; code: string; message: string } | null;
  /** The attempts, if faults are assumed, else null. */
  path: Rehearsed[] | null;
};

export type ExplainedCase = Explained & { name: string };

export type Question = { draft: DraftEndpoint; cases: ExplainCase[]; faults: ExplainFault[] };

/** What is known of a question. `cases` stay those of the question before until the next answer is there. */
export type Explanation = { cases: ExplainedCase[]; error: Error | null };

/** Explains requests once the question has not changed for a moment. Without a question nothing is asked. */
export function useExplained(question: Question | null): Explanation {
  const [known, setKnown] = useState<Explanation>({ cases: [], error: null });
  const text = question ? JSON.stringify(question) : "";
  useEffect(() => {
    if (!question) return;
    let isOver = false;
    const ask = (): void =>
      void call<{ cases: ExplainedCase[] }>("POST", "explain", { body: question }).then(
        ({ data }) => !isOver && setKnown({ cases: data.cases, error: null }),
        (error: Error) => !isOver && setKnown({ cases: [], error }),
      );
    const timer = setTimeout(ask, known.cases.length || known.error ? DELAY_MS : 0);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [text]);
  return known;
}

const DELAY_MS = 250;
const TEXT = "Say hello.";

/** The path of an operation and the body of a plain request to it; null for operations that take more than text. */
export function plainRequest(operation: string, model: string): { path: string; body: Record<string, unknown> } | null {
  const messages = [{ role: "user", content: TEXT }];
  const requests: Record<string, [path: string, body: Record<string, unknown>]> = {
    chat_completions: ["/v1/chat/completions", { messages }],
    messages: ["/v1/messages", { messages, max_tokens: 128 }],
    count_tokens: ["/v1/messages/count_tokens", { messages }],
    responses: ["/v1/responses", { input: TEXT, store: false }],
    embeddings: ["/v1/embeddings", { input: TEXT }],
    speech: ["/v1/audio/speech", { input: TEXT, voice: "alloy" }],
    images: ["/v1/images/generations", { prompt: TEXT }],
    videos: ["/v1/videos/generations", { prompt: TEXT }],
  };
  const found = requests[operation];
  return found ? { path: found[0], body: { model, ...found[1] } } : null;
}
