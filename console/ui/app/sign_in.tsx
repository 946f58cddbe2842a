// The sign-in. It opens over the page when the session has ended, and nothing that was typed below it is lost.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { currentSession, Fault, openHumanSession, openSession, signedIn, sso } from "../api/client";
import { FormError } from "../part/form";
import { Brand, Icon } from "../part/icon";

/** The words for what a sign-in is answered with. */
export function wordsOf(error: Error): string {
  if (!(error instanceof Fault)) return error.message;
  if (error.status === 401) return "This is not an administrator key of this gateway.";
  if (error.status === 403 && error.code !== "forbidden_origin")
    return "This is a project key. Project keys cannot administer the gateway.";
  if (error.status === 429) return "Too many wrong keys from your address. The right key still works.";
  return error.message;
}

export function SignIn({ first }: { first: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const [isRevealed, reveal] = useState(false);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    document.title = first ? "Sign in to llmgw" : document.title;
    dialog.current?.showModal();
    // The identity may have changed since the page was opened.
    if (!first) void currentSession().catch(() => null);
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, [first]);
  const continueAsHuman = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    await openHumanSession().then(signedIn, (fault: Error) => setError(fault));
    setBusy(false);
  };
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const input = field.current;
    const key = input?.value.trim() ?? "";
    if (!input || busy) return;
    setBusy(true);
    setError(null);
    try {
      const opened = await openSession(key);
      input.value = "";
      signedIn(opened);
    } catch (fault) {
      setError(new Error(wordsOf(fault as Error)));
      input.select();
    }
    setBusy(false);
  };
  return (
    <dialog
      ref={dialog}
      class={first ? "dialog sign-in first" : "dialog sign-in"}
      aria-labelledby={`${id}-title`}
      onCancel={(e) => e.preventDefault()}
    >
      <form class="dialog-box form" onSubmit={submit}>
        <div class="sign-in-head">
          <Brand />
          <h1 id={`${id}-title`}>Sign in to llmgw</h1>
        </div>
        {!first && <p>You were signed out after an hour without activity. Nothing you typed is lost.</p>}
        {sso.value && (
          <div class="field">
            {sso.value.user && (
              <button type="button" class="btn primary" disabled={busy} onClick={() => void continueAsHuman()}>
                Continue as {sso.value.user}
              </button>
            )}
            {!sso.value.user && (
              <p class="help">
                {sso.value.problem ??
                  "Single sign-on is on, but this address does not lead through its proxy. Sign in with a key, or open the address of the proxy."}
              </p>
            )}
          </div>
        )}
        <input type="text" autocomplete="username" value="administrator" readOnly hidden />
        <div class="field">
          <label for={id}>Administrator key</label>
          <span class="revealing">
            <input
              ref={field}
              id={id}
              class="input mono"
              {...({ type: isRevealed ? "text" : "password" } as { type: "password" })}
              autocomplete="current-password"
              spellcheck={false}
              required
              aria-describedby={`${id}-help`}
            />
            <button type="button" class="btn" aria-label="Show the key" aria-pressed={isRevealed} onClick={() => reveal(!isRevealed)}>
              <Icon name="eye" small />
            </button>
          </span>
          <p class="help" id={`${id}-help`}>
            The value of <code>LLMGW_API_KEY</code>. Started with <code>quickstart</code>? It is in <code>~/.llmgw.secrets</code>.
          </p>
        </div>
        <FormError error={error} />
        <button type="submit" class={sso.value?.user ? "btn" : "btn primary"} disabled={busy}>
          {busy ? "Signing in…" : "Sign in"}
        </button>
      </form>
    </dialog>
  );
}
