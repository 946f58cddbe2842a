// OAuth connections: the sign-in of a human at a provider, and the form that creates such a provider.
import { useEffect, useState } from "preact/hooks";
import { at, call, may } from "../api/client";
import { enabledHumans, projects, useFirst } from "../api/objects";
import { changed, useResource } from "../api/resource";
import type { GatewayState, OauthDisconnected, Principal, Project, Provider, StartedOauthSignIn } from "../api/types";
import { href } from "../app/router";
import { Chooser } from "../part/chooser";
import { Combobox, without } from "../part/combobox";
import { Copyable } from "../part/copy";
import { Confirm } from "../part/dialog";
import { notify } from "../part/feedback";
import { Field, Form, FormButtons, FormError, FormFooterError, Text, useSubmission } from "../part/form";
import { moment, plural, UNKNOWN } from "../part/format";
import { type MarkKind, State } from "../part/icon";
import { Ref } from "../part/links";
import { Card, Facts } from "../part/page";
import { givenTimes, TimeoutFields, type Times } from "./provider/timeouts";

export const EXPERIMENTAL = "Experimental. Uses the OAuth client that you registered.";

const refresh = (): void => changed("providers", "health", "catalog", "endpoints");

const STATES: Record<string, [MarkKind, string]> = {
  none: ["off", "not connected"],
  waiting: ["warn", "waiting for consent"],
  connected: ["ok", "connected"],
  expiring: ["warn", "cannot be renewed at the moment"],
  broken: ["bad", "must be connected again"],
};

/** The pause between two readings while the human consents on the vendor's page. */
const POLL_MS = 2000;

export function SignInCard({ of, title = "Sign-in" }: { of: Provider; title?: string }) {
  const { sign_in: signIn } = of;
  const [started, setStarted] = useState<StartedOauthSignIn | null>(null);
  const [leaving, setLeaving] = useState(false);
  const submission = useSubmission();
  const waiting = signIn?.state === "waiting";
  useEffect(() => {
    if (!waiting) return;
    const timer = setInterval(() => {
      if (!document.hidden) refresh();
    }, POLL_MS);
    return () => clearInterval(timer);
  }, [waiting]);
  if (!signIn) return null;
  const path = `providers/${encodeURIComponent(of.id)}/oauth`;
  const start = (method: "browser" | "device"): void =>
    void submission.run(Date.now(), async () => {
      // A link of an earlier sign-in ends with the new one.
      setStarted(null);
      const { data } = await call<StartedOauthSignIn>("POST", `${path}/start`, { body: { method } });
      setStarted(data);
      refresh();
    });
  const [mark, word] = STATES[signIn.state] ?? ["off", signIn.state];
  const isConnected = signIn.connected_at_ms !== null;
  return (
    <Card title={title}>
      <p class="help">{of.extension ? `The extension ${of.extension} signs in to its vendor.` : EXPERIMENTAL}</p>
      <Facts
        rows={[
          ["State", <State key="s" kind={mark} word={word} />],
          ["Account", signIn.account],
          ["Owner", may("administer") && of.owner ? <Owner key="o" id={of.owner} /> : null],
          ["Scopes", signIn.scopes.join(" ") || null],
          ["Token", isConnected ? (signIn.renewable ? "renewed by itself" : "not renewable") : null],
          ["Expires", isConnected ? (signIn.expires_at_ms ? moment(signIn.expires_at_ms) : UNKNOWN) : null],
          ["Renewed", signIn.refreshed_at_ms ? moment(signIn.refreshed_at_ms) : null],
        ]}
      />
      {of.source === "api" && of.owner && <Shares of={of} />}
      {signIn.last_error && (
        <p class="help bad wrap">
          {moment(signIn.last_error.at_ms)}: {signIn.last_error.message}
        </p>
      )}
      {waiting && started && <NextStep of={started} />}
      {signIn.lacks && (
        <p class="help wrap">
          {signIn.lacks} {signIn.redirect_uri && `Redirect URI: ${signIn.redirect_uri}`}
        </p>
      )}
      <FormError error={submission.error} />
      <div class="dialog-foot">
        {isConnected && (
          <button type="button" class="btn" onClick={() => setLeaving(true)}>
            Disconnect
          </button>
        )}
        {signIn.on_device && (
          <button type="button" class="btn" onClick={() => start("device")} disabled={submission.busy}>
            Use another device
          </button>
        )}
        <button type="button" class="btn primary" onClick={() => start("browser")} disabled={submission.busy || signIn.lacks !== null}>
          {isConnected ? "Reconnect" : "Connect"}
        </button>
      </div>
      {leaving && (
        <Confirm
          title={`Disconnect ${of.id}?`}
          action="Disconnect"
          run={async () => {
            const { data } = await call<OauthDisconnected>("DELETE", path);
            notify(data.error ? `Disconnected. The vendor did not revoke the tokens: ${data.error}` : `${of.id} is disconnected`);
            refresh();
          }}
          onClose={() => setLeaving(false)}
        >
          <p>Its tokens are forgotten, and revoked at the vendor if it has an address for that. Requests get 503 from then on.</p>
        </Confirm>
      )}
    </Card>
  );
}

function Owner({ id }: { id: string }) {
  const human = useResource<Principal>(`principals/${encodeURIComponent(id)}`).data.value;
  return <Ref kind="human" id={id} name={human?.name} />;
}

/** Who may use the provider although it is private. Its projects are asked for once somebody wants to change that. */
function Shares({ of }: { of: Provider }) {
  const [open, setOpen] = useState(false);
  const projects = of.bindings?.length ?? 0;
  return (
    <details class="form shares" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {projects ? `Shared with the keys of ${plural(projects, "project")}` : "Only keys that act as its owner may use it"}
      </summary>
      {open && <ShareEditor of={of} />}
    </details>
  );
}

/** The projects whose keys may use the provider, and those that it can be shared with. */
function ShareEditor({ of }: { of: Provider }) {
  const submission = useSubmission();
  const shared = of.bindings?.map(({ project }) => project) ?? [];
  const change = (method: "PUT" | "DELETE", project: string): void =>
    void submission.run(Date.now(), async () => {
      await call(method, `providers/${encodeURIComponent(of.id)}/bindings/${encodeURIComponent(project)}`);
      refresh();
    });
  return (
    <>
      <ul class="plain">
        {shared.map((project) => (
          <SharedWith key={project} id={project} onStop={() => change("DELETE", project)} />
        ))}
      </ul>
      <Field label="Share with a project" name="project" optional>
        <Combobox
          label="Share with a project"
          placeholder="Choose a project"
          suggest={without(projects.suggest, shared)}
          onPick={(project) => change("PUT", project)}
        />
      </Field>
      <FormError error={submission.error} />
    </>
  );
}

/** A project whose keys may use the provider. */
function SharedWith({ id, onStop }: { id: string; onStop: () => void }) {
  const name = useResource<Project>(at("projects", id)).data.value?.name ?? id;
  return (
    <li class="split">
      <a href={href(`/access/projects/${id}`)}>{name}</a>
      <button type="button" class="btn small" onClick={onStop} aria-label={`Stop sharing with ${name}`}>
        Stop sharing
      </button>
    </li>
  );
}

/** What the human has to do now. The page that the vendor sends the browser back to opens beside this one. */
function NextStep({ of }: { of: StartedOauthSignIn }) {
  return (
    <div class="alert" role="status">
      <p>
        <a href={of.authorize_url} target="_blank" rel="noopener noreferrer">
          {of.user_code ? "Open the vendor's page on any device" : "Open the vendor's page and consent"}
        </a>
        {of.user_code && (
          <>
            {" and type "}
            <b class="mono">{of.user_code}</b>
          </>
        )}
        . This page continues by itself, until {moment(of.expires_at_ms)}.
      </p>
    </div>
  );
}

/** The tile that leads to [`OauthForm`], greyed with the reason if the operator's client is missing. */
export function OauthTile({ onChoose }: { onChoose: () => void }) {
  const oauth = useResource<GatewayState>("state").data.value?.oauth;
  if (!oauth) return null;
  return (
    <div class="tile">
      <b>OAuth</b>
      <span class="help">{EXPERIMENTAL}</span>
      {oauth.lacks && <span class="help wrap">{oauth.lacks}</span>}
      {oauth.redirect_uri && <Copyable text={oauth.redirect_uri} label="Redirect URI to register" clip />}
      {oauth.lacks && !oauth.redirect_uri && (
        <span class="help wrap">
          Redirect URI to register: <span class="mono">LLMGW_OAUTH_PUBLIC_BASE_URL/oauth/callback/partner</span>
        </span>
      )}
      <button type="button" class="btn small" onClick={onChoose} disabled={!oauth.client_id_set}>
        Connect with OAuth
      </button>
    </div>
  );
}

export type OauthFields = Times & {
  id: string;
  base_url: string;
  owner: string;
  models: string;
  authorize_url: string;
  token_url: string;
  userinfo_url: string;
  revocation_url: string;
  device_authorization_url: string;
  scopes: string;
};

export const words = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

/** The body that creates the provider; addresses left empty are not sent. */
export function oauthBody({
  id,
  base_url,
  owner,
  models,
  scopes,
  timeout,
  stream_idle_timeout,
  first_content_timeout,
  ...addresses
}: OauthFields): Record<string, unknown> {
  const given = Object.entries(addresses).filter(([, value]) => value.trim() !== "");
  return {
    id,
    type: "oauth_partner",
    base_url: base_url.trim(),
    owner,
    ...(words(models).length ? { models: words(models) } : {}),
    ...givenTimes({ timeout, stream_idle_timeout, first_content_timeout }),
    oauth: { ...Object.fromEntries(given.map(([name, value]) => [name, value.trim()])), scopes: words(scopes) },
  };
}

const ADDRESSES: [Exclude<keyof OauthFields, keyof Times>, string, boolean][] = [
  ["authorize_url", "Consent page", false],
  ["token_url", "Token address", false],
  ["userinfo_url", "Account address", true],
  ["revocation_url", "Revocation address", true],
  ["device_authorization_url", "Device address", true],
];

/** Returns the ID of the owner that a form begins with, which is empty if there is no human. */
export const useFirstHuman = (): string => useFirst(enabledHumans)?.found[0]?.value ?? "";

type OwnerProps = { owner: string; onOwner: (id: string) => void };

export function OwnerField({ owner, onOwner }: OwnerProps) {
  return (
    <Field label="Owner" name="owner" help="The human who signs in. The provider is private to them until it is shared.">
      {owner ? (
        <Chooser label="Owner" value={owner} onValue={onOwner} of={enabledHumans} />
      ) : (
        <a href={href("/access")}>Create a human first</a>
      )}
    </Field>
  );
}

type FormProps = { onConnected: (provider: Provider) => void; onBack: () => void };

export function OauthForm({ onConnected, onBack }: FormProps) {
  const firstHuman = useFirstHuman();
  const [fields, setFields] = useState<OauthFields>({
    id: "partner",
    base_url: "",
    owner: "",
    models: "",
    authorize_url: "",
    token_url: "",
    userinfo_url: "",
    revocation_url: "",
    device_authorization_url: "",
    scopes: "",
    timeout: "",
    stream_idle_timeout: "",
    first_content_timeout: "",
  });
  const submission = useSubmission();
  const owner = fields.owner || firstHuman;
  const set = (change: Partial<OauthFields>): void => setFields({ ...fields, ...change });
  const submit = (): void => {
    const body = oauthBody({ ...fields, owner });
    void submission.run(body, async (repeatKey) => {
      const { data } = await call<Provider>("POST", "providers", { body, repeatKey });
      refresh();
      onConnected(data);
    });
  };
  return (
    <Form submission={submission} onSubmit={submit}>
      <p class="help">{EXPERIMENTAL} The human then signs in on the provider's page.</p>
      <Field label="Name" name="id" help="Models are called NAME/MODEL.">
        <Text value={fields.id} onValue={(id) => set({ id })} autoFocus />
      </Field>
      <OwnerField owner={owner} onOwner={(owner) => set({ owner })} />
      <Field label="Base URL of the API" name="base_url">
        <Text inputMode="url" value={fields.base_url} onValue={(base_url) => set({ base_url })} placeholder="https://…" />
      </Field>
      {ADDRESSES.map(([name, label, optional]) => (
        <Field key={name} label={label} name={`oauth.${name}`} optional={optional}>
          <Text inputMode="url" value={fields[name]} onValue={(value) => set({ [name]: value })} placeholder="https://…" />
        </Field>
      ))}
      <Field label="Scopes" name="oauth.scopes" optional help="Separated by spaces.">
        <Text value={fields.scopes} onValue={(scopes) => set({ scopes })} />
      </Field>
      <Field label="Models" name="models" optional help="Beside those that its own list has. Separated by commas.">
        <Text value={fields.models} onValue={(models) => set({ models })} />
      </Field>
      <details>
        <summary>Timeouts</summary>
        <TimeoutFields value={fields} onValue={set} />
      </details>
      <FormFooterError />
      <FormButtons
        busy={submission.busy}
        submit="Create"
        submitting="Creating…"
        cancel="Back"
        onCancel={onBack}
        lacks={!owner && "Choose its owner first."}
      />
    </Form>
  );
}
