// Which targets would serve requests, asked of the gateway. Nothing is sent to an upstream.
import { useEffect, useState } from "preact/hooks";
import { call } from "./client";
import type { ExplainCase, ExplainedCase, ExplainedCases, ExplainFault, NewEndpoint } from "./types";

export type { ExplainedCase, Explanation as Explained, RehearsedTarget as Rehearsed } from "./types";

export type Question = { draft: NewEndpoint; cases: ExplainCase[]; faults: ExplainFault[] };

/** What is known of a question. `cases` stay those of the question before until the next answer is there. */
export type Explanations = { cases: ExplainedCase[]; error: Error | null };

/** Explains requests once the question has not changed for a moment. Without a question nothing is asked. */
export function useExplained(question: Question | null): Explanations {
  const [known, setKnown] = useState<Explanations>({ cases: [], error: null });
  const text = question ? JSON.stringify(question) : "";
  useEffect(() => {
    if (!question) return;
    let isOver = false;
    const ask = (): void =>
      void call<ExplainedCases>("POST", "explain", { body: question }).then(
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
    generate_content: [`/v1beta/models/${encodeURIComponent(model)}:generateContent`, { contents: [{ parts: [{ text: TEXT }] }] }],
    responses: ["/v1/responses", { input: TEXT, store: false }],
    embeddings: ["/v1/embeddings", { input: TEXT }],
    speech: ["/v1/audio/speech", { input: TEXT, voice: "alloy" }],
    images: ["/v1/images/generations", { prompt: TEXT }],
    videos: ["/v1/videos/generations", { prompt: TEXT }],
  };
  const found = requests[operation];
  return found ? { path: found[0], body: { model, ...found[1] } } : null;
}
