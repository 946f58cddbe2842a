// What can be done with a key: reveal, rotate, disable, revoke, delete; each says beforehand what it does.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, mayIn } from "../api/client";
import { changed, useResource } from "../api/resource";
import type { Key, KeyWithSecret, Permission, Usage } from "../api/types";
import { go, href, path } from "../app/router";
import { Confirm, Dialog } from "../part/dialog";
import { WriteOutlook } from "../part/effects";
import { notify } from "../part/feedback";
import { Field, Form, FormButtons, FormFooterError, Select, useSubmission } from "../part/form";
import { moment, plural, zoneName } from "../part/format";
import { type Item, Menu } from "../part/menu";
import { SecretDialog } from "./secret";

type Doing = "reveal" | "rotate" | "disable" | "revoke" | "delete" | null;

const DAY_MS = 86_400_000;

export function KeyMenu({ of }: { of: Key }) {
  const { items, dialog } = useKeyActions(of);
  return (
    <div class="actions">
      <Menu label={`Actions for ${of.name}`} items={items} />
      {dialog}
    </div>
  );
}

/** The actions that the state of a key permits, and the dialog of the one under way. */
export function useKeyActions(key: Key): { items: Item[]; dialog: JSX.Element | null } {
  const [doing, setDoing] = useState<Doing>(null);
  const close = (): void => setDoing(null);
  const isOver = key.state === "revoked";
  const enable = async (): Promise<void> => {
    await patch(key, { state: "active" }).then(
      () => notify(`${key.name} works again`),
      (error: Error) => notify(error.message),
    );
  };
  const lacks = (permission: Permission): boolean => !mayIn(key.project, permission, key.acts_as);
  const isFixed = lacks("change_keys");
  const items: Item[] = [
    { label: "Reveal", icon: "eye", run: () => setDoing("reveal"), disabled: isOver || !key.recoverable || lacks("reveal_keys") },
    { label: "Rotate", icon: "rotate-cw", run: () => setDoing("rotate"), disabled: key.state !== "active" || lacks("mint_keys") },
    key.state === "disabled"
      ? { label: "Enable", icon: "play", run: () => void enable(), disabled: isFixed }
      : { label: "Disable", icon: "power", run: () => setDoing("disable"), disabled: isOver || isFixed },
    { label: "Revoke", icon: "ban", run: () => setDoing("revoke"), danger: true, disabled: isOver || isFixed },
    { label: "Delete", icon: "trash-2", run: () => setDoing("delete"), danger: true, disabled: !isOver || isFixed },
  ];
  const dialogs: Record<Exclude<Doing, null>, () => JSX.Element> = {
    reveal: () => <Reveal of={key} onClose={close} />,
    rotate: () => <Rotate of={key} onClose={close} />,
    disable: () => <Disable of={key} onClose={close} />,
    revoke: () => <Revoke of={key} onClose={close} />,
    delete: () => <Delete of={key} onClose={close} />,
  };
  return { items, dialog: doing ? dialogs[doing]() : null };
}

type Props = { of: Key; onClose: () => void };

async function patch(key: Key, body: Partial<Key>): Promise<void> {
  await call("PATCH", `keys/${key.id}`, { body, ifMatch: key.version });
  changed("keys");
}

/** How often the key was used since `since`; null while that is read. */
function useRequests(key: Key, span: number): number | null {
  const [since] = useState(() => Math.floor((Date.now() - span) / 3_600_000) * 3_600_000);
  return useResource<Usage>(`usage?key=${encodeURIComponent(key.id)}&from=${since}`).data.value?.totals?.requests ?? null;
}

function Reveal({ of, onClose }: Props) {
  const [secret, setSecret] = useState<string | null>(null);
  if (secret !== null) return <SecretDialog title={`Key ${of.name}`} secret={secret} recoverable onClose={onClose} />;
  return <RevealQuestion of={of} onClose={onClose} onSecret={setSecret} />;
}

function RevealQuestion({ of, onClose, onSecret }: Props & { onSecret: (secret: string) => void }) {
  const submission = useSubmission();
  const reveal = (): void =>
    void submission.run({}, async () => {
      const { data } = await call<{ key: string }>("POST", `keys/${of.id}/reveal`, { body: {} });
      onSecret(data.key);
    });
  return (
    <Dialog title={`Reveal ${of.name}?`} onClose={onClose}>
      <Form submission={submission} onSubmit={reveal}>
        <p class="prose">This is recorded in the audit.</p>
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Reveal" onCancel={onClose} saves={false} />
      </Form>
    </Dialog>
  );
}

/** The times for which an old secret works beside its successor. */
export const OVERLAPS: [string, string][] = [
  ["0", "no time: it ends at once"],
  ["3600", "an hour"],
  ["86400", "a day"],
  ["604800", "a week"],
  ["2592000", "30 days"],
];

function Rotate({ of, onClose }: Props) {
  const [made, setMade] = useState<KeyWithSecret | null>(null);
  const [overlap, setOverlap] = useState("86400");
  const submission = useSubmission();
  if (made?.key) return <SecretDialog title={`New key ${made.name}`} secret={made.key} recoverable={made.recoverable} onClose={onClose} />;
  const rotate = (): void => {
    const body = { overlap_seconds: Number(overlap) };
    void submission.run(body, async (repeatKey) => {
      const { data } = await call<KeyWithSecret>("POST", `keys/${of.id}/rotate`, { body, repeatKey, ifMatch: of.version });
      changed("keys");
      if (data.key) setMade(data);
      else onClose();
    });
  };
  const ends = Date.now() + Number(overlap) * 1000;
  const until = of.expires_at_ms === null ? ends : Math.min(ends, of.expires_at_ms);
  return (
    <Dialog title={`Rotate ${of.name}?`} onClose={onClose}>
      <Form submission={submission} onSubmit={rotate}>
        <p class="prose">A new key with the same settings and the same limits is made.</p>
        <Field
          label="The old key goes on for"
          name="overlap_seconds"
          help={overlap === "0" ? "The old key ends with the click." : `The old key works until ${moment(until)} ${zoneName()}.`}
        >
          <Select value={overlap} onValue={setOverlap} options={OVERLAPS} />
        </Field>
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Rotate" onCancel={onClose} saves={false} />
      </Form>
    </Dialog>
  );
}

function Disable({ of, onClose }: Props) {
  return (
    <Confirm title={`Disable ${of.name}?`} action="Disable" danger={false} run={() => patch(of, { state: "disabled" })} onClose={onClose}>
      <p>It is rejected from the next request on. Answers that have started continue. It can be enabled again.</p>
      <WriteOutlook write={{ method: "PATCH", path: `keys/${of.id}`, body: { state: "disabled" }, ifMatch: of.version }} />
    </Confirm>
  );
}

function Revoke({ of, onClose }: Props) {
  const week = useRequests(of, 7 * DAY_MS);
  const today = useRequests(of, DAY_MS);
  return (
    <Confirm
      title={`Revoke ${of.name}?`}
      action="Revoke"
      typed={today ? of.name : undefined}
      run={() => patch(of, { state: "revoked" })}
      onClose={onClose}
    >
      <p>
        For good.{" "}
        {week === null ? "" : week === 0 ? "It served no request this week." : `It was used for ${plural(week, "request")} this week.`}
      </p>
      <WriteOutlook write={{ method: "PATCH", path: `keys/${of.id}`, body: { state: "revoked" }, ifMatch: of.version }} />
    </Confirm>
  );
}

function Delete({ of, onClose }: Props) {
  const run = async (): Promise<void> => {
    await call("DELETE", `keys/${of.id}`, { ifMatch: of.version });
    if (path.value === `/keys/${of.id}`) go(href("/keys"));
    changed("keys", "quotas");
    notify(`${of.name} was deleted`);
  };
  return (
    <Confirm title={`Delete ${of.name}?`} action="Delete" run={run} onClose={onClose}>
      <p>The key is revoked already. Its usage records stay and keep its id.</p>
      <WriteOutlook write={{ method: "DELETE", path: `keys/${of.id}`, ifMatch: of.version }} />
    </Confirm>
  );
}
