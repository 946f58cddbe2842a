// What would serve a request like a recorded one today. Its content is not kept, so a plain request for the same selector is
// explained.
import { useEffect, useState } from "preact/hooks";
import { call } from "../api/client";
import { type Explained, plainRequest } from "../api/explain";
import type { FullRecord } from "../api/shapes";
import { Dialog } from "../part/dialog";
import { ErrorBox } from "../part/feedback";
import { duration } from "../part/format";
import { Mark } from "../part/icon";
import { stepWords } from "../part/outcome";

export function ExplainAgain({ of, onClose }: { of: FullRecord; onClose: () => void }) {
  const [found, setFound] = useState<Explained | null>(null);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const request = plainRequest(of.operation, of.selector);
    const key = of.key.startsWith("key_") ? { key_id: of.key } : {};
    void call<Explained>("POST", "explain", { body: { ...request, ...key } }).then(({ data }) => setFound(data), setError);
  }, []);
  const [first] = found?.candidates ?? [];
  return (
    <Dialog title="Explain again" onClose={onClose}>
      <p class="help">The content of the request is not kept. This is about a plain request for {of.selector} with the same key.</p>
      {error && <ErrorBox error={error} />}
      {!found && !error && <p aria-busy="true">Asking…</p>}
      {found && (
        <div role="status">
          <p class="wrap">
            {first
              ? `Today ${first.provider}/${first.model} would serve it first.`
              : (found.refusal?.message ?? "Today no target would serve it.")}
          </p>
          {found.would_wait && (
            <p class="wrap">
              It would wait in the line of a limit, behind {found.would_wait.waiting} requests, up to{" "}
              {duration(found.would_wait.wait_ms * 1000)}.
            </p>
          )}
          <ol class="stack-list">
            {(found.candidates ?? []).map(({ provider, model }) => (
              <li key={`${provider}/${model}`} class="state wrap">
                <Mark kind="ok" />
                {provider}/{model}
              </li>
            ))}
            {(found.passed_over ?? []).map(({ provider, model, reason, wait_ms }) => (
              <li key={`${provider}/${model}`} class="state wrap">
                <Mark kind="off" />
                {provider}/{model}: {stepWords({ provider, model, result: reason })}
                {wait_ms ? `, next try in ${duration(wait_ms * 1000)}` : ""}
              </li>
            ))}
          </ol>
        </div>
      )}
    </Dialog>
  );
}
