// Modal dialogs on the browser's own `dialog`: it keeps the focus inside and returns it afterwards.
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { FormError } from "./form";
import { Icon } from "./icon";

type Props = {
  title: string;
  children: ComponentChildren;
  /** Called by Escape, the cross and a click beside the dialog. Without it only the dialog's own buttons close it. */
  onClose?: (() => void) | undefined;
  wide?: boolean;
};

export function Dialog({ title, children, onClose, wide }: Props) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Before the next key arrives: what is typed at once goes into the dialog.
  useLayoutEffect(() => {
    const dialog = ref.current;
    if (!dialog) return;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class={wide ? "dialog wide" : "dialog"}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose?.();
      }}
      onMouseDown={(event) => {
        if (event.target === event.currentTarget) onClose?.();
      }}
    >
      <div class="dialog-box">
        <div class="dialog-head">
          <h2 id={id}>{title}</h2>
          {onClose && (
            <button type="button" class="btn plain square small" aria-label="Close" onClick={onClose}>
              <Icon name="x" small />
            </button>
          )}
        </div>
        {children}
      </div>
    </dialog>
  );
}

type ConfirmProps = {
  title: string;
  /** What happens. */
  children: ComponentChildren;
  action: string;
  /** A name that has to be typed before the action is possible. */
  typed?: string | undefined;
  danger?: boolean;
  run: () => Promise<unknown>;
  onClose: () => void;
};

/** Asks before an action and shows why it failed. It closes when the action is done. */
export function Confirm({ title, children, action, typed, danger = true, run, onClose }: ConfirmProps) {
  const [text, setText] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const id = useId();
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await run();
      onClose();
    } catch (fault) {
      setError(fault as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={busy ? undefined : onClose}>
      <form class="form" onSubmit={submit}>
        <div class="prose">{children}</div>
        {typed !== undefined && (
          <div class="field">
            <label for={id}>
              Type <b class="mono wrap">{typed}</b> to go on
            </label>
            <input
              id={id}
              class="input mono"
              autocomplete="off"
              spellcheck={false}
              value={text}
              onInput={(e) => setText(e.currentTarget.value)}
            />
          </div>
        )}
        <FormError error={error} />
        <div class="dialog-foot">
          <button type="button" class="btn" onClick={onClose} disabled={busy}>
            Cancel
          </button>
          <button
            type="submit"
            class={danger ? "btn danger-fill" : "btn primary"}
            disabled={busy || (typed !== undefined && text !== typed)}
          >
            {busy ? "Working…" : action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
