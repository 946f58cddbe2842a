// A key in clear text: shown once, gone after a minute or when the page is left.
import { useEffect, useState } from "preact/hooks";
import { CopyButton } from "../part/copy";
import { Dialog } from "../part/dialog";

type Props = { title: string; secret: string; recoverable: boolean; onClose: () => void };

/** The dialog of a new or revealed key. It closes by its button alone. */
export function SecretDialog({ title, secret, recoverable, onClose }: Props) {
  const [shown, show] = useState<string | null>(secret);
  useEffect(() => {
    const timer = setTimeout(() => show(null), SHOWN_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <Dialog title={title}>
      <p>This key opens the gateway. Copy it now.</p>
      {shown === null ? (
        <p class="secret">The key was hidden after a minute.</p>
      ) : (
        <p class="secret" data-secret>
          {shown}
        </p>
      )}
      <p class="help">{recoverable ? "It can be revealed later; each reveal is recorded." : "It will not be shown again."}</p>
      <div class="dialog-foot">
        {shown !== null && <CopyButton text={shown} />}
        <button type="button" class="btn primary" onClick={onClose}>
          I have copied it
        </button>
      </div>
    </Dialog>
  );
}

const SHOWN_MS = 60_000;
