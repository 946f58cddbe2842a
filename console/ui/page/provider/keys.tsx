// The keys of a provider: what may be shown of each, its state, and how keys are added and removed.
import { useState } from "preact/hooks";
import type { Provider, ProviderKey } from "../../api/types";
import { Confirm, Dialog } from "../../part/dialog";
import { notify } from "../../part/feedback";
import { Field, Form, FormButtons, FormFooterError, Text, useSubmission } from "../../part/form";
import { duration } from "../../part/format";
import { Icon, Mark } from "../../part/icon";
import { Card } from "../../part/page";

type KeptKey = { id: string };

/** The IDs of the keys that a change keeps. A single key is `c1`. */
export const keptKeys = (of: Provider): KeptKey[] => {
  if (of.api_keys) return of.api_keys.map(({ id }) => ({ id }));
  return of.credential.set ? [{ id: "c1" }] : [];
};

/** The change that adds a key. */
export const withKey = (of: Provider, key: string): object => {
  const kept = keptKeys(of);
  return kept.length ? { api_keys: [...kept, { key }] } : { api_key: key };
};

/** The change that removes a key. */
export const withoutKey = (of: Provider, id: string): object => ({ api_keys: keptKeys(of).filter((kept) => kept.id !== id) });

const MARKS = { ready: "ok", resting: "warn", open: "bad", rejected: "bad" } as const;

const STATES = {
  ready: "ready",
  resting: "rests after a rate limit",
  open: "circuit open",
  rejected: "rejected by the upstream",
} as const;

/** What may be shown of a key. */
export const keyName = ({ id, last_four, reference }: ProviderKey): string =>
  `${id}${reference ? `, ${reference}` : last_four ? `, ends in ${last_four}` : ""}`;

/** The state of a key, with the time until it is used again. */
export const keyState = ({ state, wait_ms }: ProviderKey): string => {
  if (!state) return "not in use";
  return wait_ms ? `${STATES[state]}, next try in ${duration(wait_ms * 1000)}` : STATES[state];
};

type Props = { of: Provider; isFixed: boolean; onAdd: () => void; onRemove: (key: ProviderKey) => void };

export function KeysCard({ of, isFixed, onAdd, onRemove }: Props) {
  if (!of.api_keys) return null;
  return (
    <Card
      title="Keys"
      aside={
        <button type="button" class="btn small" onClick={onAdd} disabled={isFixed}>
          <Icon name="key-round" small />
          Add key
        </button>
      }
    >
      <ul class="evidence">
        {of.api_keys.map((key) => (
          <li class="evidence-line" key={key.id}>
            <Mark kind={key.state ? MARKS[key.state] : "off"} />
            <div>
              <b class="mono wrap">{keyName(key)}</b>
            </div>
            <span class="muted">{keyState(key)}</span>
            <button type="button" class="btn plain small" onClick={() => onRemove(key)} disabled={isFixed} aria-label={`Remove ${key.id}`}>
              Remove
            </button>
          </li>
        ))}
      </ul>
      <p class="help">
        A session stays with its key. A request whose key is rejected or limited is sent with another one at once, at most three in all.
      </p>
    </Card>
  );
}

type DialogProps = { of: Provider; patch: (body: object) => Promise<void>; onClose: () => void };

type Texts = { title: string; field: string; help: string; submit: string; done: string };

/** Asks for a key, and sends the change that `change` makes of it. */
function KeyDialog({ texts, change, patch, onClose }: Omit<DialogProps, "of"> & { texts: Texts; change: (key: string) => object }) {
  const [key, setKey] = useState("");
  const submission = useSubmission();
  const save = (): void =>
    void submission.run("key", async () => {
      await patch(change(key));
      notify(texts.done);
      onClose();
    });
  return (
    <Dialog title={texts.title} onClose={onClose}>
      <Form submission={submission} onSubmit={save}>
        <Field label="API key" name={texts.field} help={texts.help}>
          <Text type="password" value={key} onValue={setKey} autoFocus />
        </Field>
        <FormFooterError />
        <FormButtons busy={submission.busy} submit={texts.submit} onCancel={onClose} />
      </Form>
    </Dialog>
  );
}

export function ReplaceKey({ of, ...rest }: DialogProps) {
  const texts = {
    title: `Replace the credential of ${of.id}`,
    field: "api_key",
    help: "Stored encrypted. It can be replaced, never shown.",
    submit: "Replace",
    done: `The credential of ${of.id} was replaced`,
  };
  return <KeyDialog texts={texts} change={(key) => ({ api_key: key })} {...rest} />;
}

export function AddKey({ of, ...rest }: DialogProps) {
  const texts = {
    title: `Add a key of ${of.id}`,
    field: "api_keys",
    help: "Stored encrypted. It can be removed, never shown.",
    submit: "Add key",
    done: `A key of ${of.id} was added`,
  };
  return <KeyDialog texts={texts} change={(key) => withKey(of, key)} {...rest} />;
}

export function RemoveKey({ of, removed, patch, onClose }: DialogProps & { removed: ProviderKey }) {
  return (
    <Confirm title={`Remove ${removed.id} of ${of.id}?`} action="Remove" run={() => patch(withoutKey(of, removed.id))} onClose={onClose}>
      <p>
        The key <span class="mono wrap">{keyName(removed)}</span> is erased. Its sessions move to the other keys, and stored responses that
        it made are no longer found.
      </p>
    </Confirm>
  );
}
