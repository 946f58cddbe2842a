// Extensions: services beside the gateway that provide models, what the last probe found, and the providers that use them.
import { useState } from "preact/hooks";
import { at, call } from "../api/client";
import { useList } from "../api/list";
import { changed, useResource } from "../api/resource";
import type { Extension, ExtensionProvider, Provider } from "../api/types";
import { go, href, param, setParams } from "../app/router";
import { Copyable } from "../part/copy";
import { Confirm, Dialog } from "../part/dialog";
import { EditDialog } from "../part/edit";
import { WriteOutlook } from "../part/effects";
import { Loaded, notify } from "../part/feedback";
import { Check, Field, Form, FormButtons, FormError, FormFooterError, Text, useSubmission } from "../part/form";
import { ago, count, moment, plural, UNKNOWN } from "../part/format";
import { State } from "../part/icon";
import { ListCard, NewButton } from "../part/list";
import { asked as askedFor, orderOf } from "../part/order";
import { Facts } from "../part/page";
import { Search } from "../part/search";
import { ConnectSignIn } from "./extension_sign_in";

/** The state of an extension: what its last probe found, unless it is disabled. */
export function ExtensionState({ of: { enabled, last_check } }: { of: Extension }) {
  if (!enabled) return <State kind="off" word="disabled" />;
  if (!last_check) return <State kind="warn" word="never probed" />;
  if (!last_check.ok) return <State kind="bad" word="the last probe failed" />;
  return <State kind="ok" word="answers" />;
}

export function Extensions() {
  const q = param("q");
  const order = orderOf(["name", "created"]);
  const list = useList<Extension>("extensions", { q, ...askedFor(order) });
  const open = param("extension");
  return (
    <>
      <ListCard
        filters={<Search label="Search extensions" placeholder="Name or address" />}
        list={list}
        order={order}
        label="Extensions"
        rowKey={({ name }) => name}
        isFiltered={q !== ""}
        icon="plug"
        titles={["No extension fits the search", "There is no extension"]}
        help="A service of your own that provides models which the gateway does not know."
        action={<NewButton>Add extension</NewButton>}
        columns={[
          {
            head: "Name",
            width: "1fr",
            sort: "name",
            cell: ({ name }) => (
              <a class="row-link" href={href("/providers", { tab: "extensions", extension: name })}>
                {name}
              </a>
            ),
          },
          { head: "URL", width: "2fr", fold: 4, cell: ({ url }) => <span class="mono">{url}</span> },
          { head: "State", width: 184, fold: 5, cell: (extension) => <ExtensionState of={extension} /> },
          { head: "Last probe", width: 112, fold: 3, cell: ({ last_check }) => ago(last_check?.at_ms) },
          { head: "Providers", width: 96, number: true, fold: 2, cell: ({ providers }) => count(providers.length) },
          { head: "Used by", width: 96, number: true, fold: 1, cell: ({ used_by }) => count(used_by.length) },
        ]}
      />
      {open && <OneExtension key={open} name={open} />}
      {param("new") && <NewExtension />}
    </>
  );
}

function NewExtension() {
  const [fields, setFields] = useState({ name: "", url: "", secret: "" });
  const submission = useSubmission();
  const [made, setMade] = useState("");
  const close = (): void => setParams({ new: null });
  const make = (): void => {
    const secret = newSecret();
    setMade(secret);
    set({ secret });
  };
  const set = (change: Partial<typeof fields>): void => setFields({ ...fields, ...change });
  const create = (): void =>
    void submission.run(fields, async (repeatKey) => {
      const { data } = await call<Extension>("POST", "extensions", { body: fields, repeatKey });
      setParams({ new: null, extension: data.name });
      await probe(data.name);
    });
  return (
    <Dialog title="Add extension" onClose={close}>
      <Form submission={submission} onSubmit={create}>
        <Field label="Name" name="name" help="Letters, digits, '.', '_' and '-'. It cannot be changed.">
          <Text value={fields.name} onValue={(name) => set({ name })} autoFocus />
        </Field>
        <Field label="URL" name="url" help="The base without /v1, or unix: and the path of a socket.">
          <Text inputMode="url" value={fields.url} onValue={(url) => set({ url })} placeholder="http://127.0.0.1:9000" />
        </Field>
        <Field label="Shared secret" name="secret" help="Stored encrypted, never shown. Give the extension the same one.">
          <Text type="password" value={fields.secret} onValue={(secret) => set({ secret })} placeholder="whsec_…" />
        </Field>
        {made === "" ? (
          <p class="help">
            <button type="button" class="btn small" onClick={make}>
              Make a secret
            </button>
          </p>
        ) : (
          <p class="help">
            Start the extension with <Copyable text={made} label="the secret" />
          </p>
        )}
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Add and probe" submitting="Probing…" onCancel={close} />
      </Form>
    </Dialog>
  );
}

/** A secret as the gateway takes it: 32 random bytes in base64. */
function newSecret(): string {
  return `whsec_${btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32))))}`;
}

async function probe(name: string): Promise<void> {
  const { data } = await call<Extension>("POST", at("extensions", name, "probe"), { body: {} });
  changed("extensions");
  notify(data.last_check?.ok ? `${name} has ${plural(data.providers.length, "provider")}` : `${name} could not be probed`);
}

function OneExtension({ name }: { name: string }) {
  const resource = useResource<Extension>(at("extensions", name));
  return (
    <Dialog title={`Extension ${name}`} onClose={() => setParams({ extension: null })} wide>
      <Loaded resource={resource}>{(extension) => <Details of={extension} />}</Loaded>
    </Dialog>
  );
}

function Details({ of }: { of: Extension }) {
  const [dialog, setDialog] = useState<"edit" | "delete" | null>(null);
  const submission = useSubmission();
  const { name, url, last_check, used_by, secret_updated_at_ms } = of;
  return (
    <>
      <Facts
        rows={[
          ["URL", <span class="mono wrap">{url}</span>],
          ["State", <ExtensionState of={of} />],
          ["Reports itself as", [last_check?.reported_name, last_check?.reported_version].filter(Boolean).join(" ") || UNKNOWN],
          ["Last probe", last_check ? `${moment(last_check.at_ms)}, in ${last_check.duration_ms} ms` : "never"],
          ["Secret set", moment(secret_updated_at_ms)],
          [
            "Used by",
            used_by.length
              ? used_by.map((id) => (
                  <a key={id} href={href(`/providers/${id}`)}>
                    {id}{" "}
                  </a>
                ))
              : "no provider yet",
          ],
        ]}
      />
      {last_check?.error && (
        <div class="alert bad" role="alert">
          {last_check.error.message} {last_check.error.hint}
        </div>
      )}
      <FormError error={submission.error} />
      <h3 class="group-title">Providers</h3>
      {of.providers.length === 0 && <p class="help">A probe lists the providers of the extension here.</p>}
      <ul class="tiles">
        {of.providers.map((provider) => (
          <li key={provider.id}>
            <ProviderTile extension={name} of={provider} />
          </li>
        ))}
      </ul>
      <div class="dialog-foot">
        <button type="button" class="btn" onClick={() => setDialog("delete")}>
          Delete
        </button>
        <button type="button" class="btn" onClick={() => setDialog("edit")}>
          Edit
        </button>
        <button
          type="button"
          class="btn primary"
          disabled={submission.busy}
          onClick={() => void submission.run(Date.now(), () => probe(name))}
        >
          {submission.busy ? "Probing…" : "Probe"}
        </button>
      </div>
      {dialog === "edit" && <Edit of={of} onClose={() => setDialog(null)} />}
      {dialog === "delete" && <Delete of={of} onClose={() => setDialog(null)} />}
    </>
  );
}

/** A provider of an extension, with its models and the button that connects it. */
function ProviderTile({ extension, of }: { extension: string; of: ExtensionProvider }) {
  const [key, setKey] = useState("");
  const [connecting, setConnecting] = useState(false);
  const submission = useSubmission();
  const signsIn = of.credential === "sign_in";
  const connect = (): void => {
    if (signsIn) return setConnecting(true);
    const body = {
      id: of.id,
      type: "extension",
      extension,
      extension_provider: of.id,
      protocols: of.protocols,
      ...(key ? { api_key: key } : {}),
    };
    void submission.run(body, async (repeatKey) => {
      const { data } = await call<Provider>("POST", "providers", { body, repeatKey });
      changed("providers", "extensions", "catalog", "health");
      go(href(`/providers/${data.id}`));
    });
  };
  return (
    <div class="tile">
      <b>{of.name ?? of.id}</b>
      <span class="help">
        {of.protocols.join(", ")}; {plural(of.model_count, "model")}
        {of.models.length > 0 && `: ${of.models.slice(0, SHOWN).join(", ")}${of.model_count > SHOWN ? ", …" : ""}`}
      </span>
      {of.error && <span class="help bad">{of.error.message}</span>}
      {signsIn && <span class="help">Needs the account of a human, who signs in.</span>}
      {of.credential !== "none" && !signsIn && (
        <Text
          type="password"
          value={key}
          onValue={setKey}
          aria-label={`Credential of ${of.id}`}
          placeholder={`Credential, ${of.credential}`}
        />
      )}
      <button type="button" class="btn small" onClick={connect} disabled={submission.busy || (of.credential === "required" && !key)}>
        Connect
      </button>
      {submission.error && <p class="help bad">{submission.error.message}</p>}
      {connecting && <ConnectSignIn extension={extension} of={of} onClose={() => setConnecting(false)} />}
    </div>
  );
}

const SHOWN = 6;

type Fields = { url: string; secret: string; enabled: boolean };

function Edit({ of, onClose }: { of: Extension; onClose: () => void }) {
  return (
    <EditDialog<Extension, Fields>
      title={`Edit ${of.name}`}
      path={at("extensions", of.name)}
      of={of}
      etag={`"${of.version}"`}
      fieldsOf={({ url, enabled }) => ({ url, secret: "", enabled })}
      labels={{ url: "URL", secret: "Shared secret", enabled: "Enabled" }}
      onSaved={() => changed("extensions", "providers")}
      onClose={onClose}
    >
      {({ url, secret, enabled }, set) => (
        <>
          <Field label="URL" name="url">
            <Text inputMode="url" value={url} onValue={(url) => set({ url })} />
          </Field>
          <Field label="New shared secret" name="secret" optional help="A new address or secret makes the last probe void.">
            <Text type="password" value={secret} onValue={(secret) => set({ secret })} placeholder="whsec_…" />
          </Field>
          <Check
            label="Enabled"
            help="Without it, its providers receive no requests."
            checked={enabled}
            onChange={(enabled) => set({ enabled })}
          />
        </>
      )}
    </EditDialog>
  );
}

function Delete({ of, onClose }: { of: Extension; onClose: () => void }) {
  const path = at("extensions", of.name);
  const run = async (): Promise<void> => {
    await call("DELETE", path, { ifMatch: of.version });
    setParams({ extension: null });
    changed("extensions");
    notify(`${of.name} was deleted`);
  };
  return (
    <Confirm title="Delete the extension?" action="Delete" run={run} onClose={onClose}>
      <p>
        <b>{of.name}</b>, <span class="mono wrap">{of.url}</span>. Its secret is forgotten.
      </p>
      <WriteOutlook write={{ method: "DELETE", path, ifMatch: of.version }} />
    </Confirm>
  );
}
