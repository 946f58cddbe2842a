// Editing an object that others may change at the same time: the form, the version it was opened with, and the lost race.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { call, Fault } from "../api/client";
import { useOutlook } from "../api/dry_run";
import { useResource } from "../api/resource";
import { Conflict, changesOf } from "./conflict";
import { Dialog } from "./dialog";
import { EffectsList } from "./effects";
import { Loaded } from "./feedback";
import { Form, FormButtons, FormFooterError, useSubmission } from "./form";

type Version<F> = { fields: F; etag: string | null };

type Props<T, F extends object> = {
  title: string;
  /** The path of the object in the admin API. */
  path: string;
  of: T;
  etag: string | null;
  /** The fields of the object that the form changes. */
  fieldsOf: (object: T) => F;
  labels: Record<keyof F, string>;
  /** The body of a request that makes these changes. */
  bodyOf?: (changes: Partial<F>) => object;
  children: (fields: F, set: (change: Partial<F>) => void, error: Error | null) => ComponentChildren;
  onSaved: () => void;
  onClose: () => void;
};

/** A dialog that sends what was changed. When somebody else was faster it shows both sides, and nothing is lost. */
export function EditDialog<T, F extends object>(props: Props<T, F>) {
  const { title, path, fieldsOf, labels, bodyOf = (changes) => changes, onSaved, onClose } = props;
  const [before] = useState<Version<F>>(() => ({ fields: fieldsOf(props.of), etag: props.etag }));
  const [mine, setMine] = useState(before.fields);
  const [theirs, setTheirs] = useState<Version<F> | null>(null);
  const submission = useSubmission();
  const pending = changesOf(before.fields, mine);
  const isChanged = !theirs && Object.keys(pending).length > 0;
  const { effects } = useOutlook(isChanged ? { method: "PATCH", path, body: bodyOf(pending), ifMatch: before.etag } : null);
  const save = (from: Version<F>, wanted: F): void => {
    const changes = changesOf(from.fields, wanted);
    void submission.run(changes, async () => {
      try {
        if (Object.keys(changes).length) await call("PATCH", path, { body: bodyOf(changes), ifMatch: from.etag });
        onSaved();
        onClose();
      } catch (error) {
        if (!(error instanceof Fault && error.status === 412)) throw error;
        const now = await call<T>("GET", path);
        setTheirs({ fields: fieldsOf(now.data), etag: now.etag });
      }
    });
  };
  if (theirs) {
    return (
      <Conflict
        title={`${title}: changed meanwhile`}
        labels={labels}
        before={before.fields}
        theirs={theirs.fields}
        mine={mine}
        onClose={() => setTheirs(null)}
        onSave={(wanted) => {
          setTheirs(null);
          setMine(wanted);
          save(theirs, wanted);
        }}
      />
    );
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <Form submission={submission} onSubmit={() => save(before, mine)}>
        {props.children(mine, (change) => setMine({ ...mine, ...change }), submission.error)}
        <EffectsList effects={effects} />
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Save" submitting="Saving…" onCancel={onClose} />
      </Form>
    </Dialog>
  );
}

type AddressedDialogProps<T> = {
  path: string;
  /** The title until the object is read. */
  title: string;
  onClose: () => void;
  children: (object: T) => ComponentChildren;
};

/** The dialog of an object that the address names; it is read first. */
export function AddressedDialog<T>({ path, title, onClose, children }: AddressedDialogProps<T>) {
  const resource = useResource<T>(path);
  const object = resource.data.value;
  if (object !== null) return <>{children(object)}</>;
  return (
    <Dialog title={title} onClose={onClose}>
      <Loaded resource={resource} part>
        {() => null}
      </Loaded>
    </Dialog>
  );
}
