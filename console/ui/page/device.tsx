// The sign-in of a client: a person compares its code with the one that the client shows, and approves or denies it.
import { useState } from "preact/hooks";
import { at, call, may, mayIn, self } from "../api/client";
import { projectsWhich, useFirst } from "../api/objects";
import { changed, useResource } from "../api/resource";
import type { DeviceSignIn } from "../api/types";
import { param, setParams } from "../app/router";
import { Chooser } from "../part/chooser";
import { Empty, Loaded } from "../part/feedback";
import { Field, Form, FormButtons, FormError, FormFooterError, Text, useSubmission } from "../part/form";
import { moment, plural, UNKNOWN } from "../part/format";
import { Card, Facts, Page } from "../part/page";

/** Returns a code as the gateway writes it: capital letters in two halves. */
export function written(typed: string): string {
  const letters = typed.toUpperCase().replace(/[^A-Z]/g, "");
  return letters.length > 4 ? `${letters.slice(0, 4)}-${letters.slice(4)}` : letters;
}

/** The projects in which the caller may mint a key that acts as them. An administrator's key is no human. */
const usable = projectsWhich(({ id }) => mayIn(id, "mint_keys", self()));

export function DevicePage() {
  const code = param("code");
  return (
    <Page title="Sign in a client" lead="Claude Code signs in with a key of yours after you have approved it here.">
      {code ? <Found key={code} code={code} /> : <Typed />}
    </Page>
  );
}

function Typed() {
  const [code, setCode] = useState("");
  const submission = useSubmission();
  const submit = (): void => void submission.run(code, async () => setParams({ code: written(code) }));
  return (
    <Card title="Enter the code">
      <Form submission={submission} onSubmit={submit}>
        <Field label="Code" name="code" help="The client shows it after /login, for example WDJB-MJHT.">
          <Text value={code} onValue={setCode} autoFocus />
        </Field>
        <FormButtons
          busy={submission.busy}
          submit="Continue"
          submitting="Reading…"
          lacks={written(code).length !== 9 && "Enter the whole code first."}
        />
      </Form>
    </Card>
  );
}

function Found({ code }: { code: string }) {
  const found = useResource<DeviceSignIn>(at("device-sign-ins", code));
  const missing = (
    <Empty
      icon="key-round"
      title="There is no such sign-in"
      action={
        <button type="button" class="btn" onClick={() => setParams({ code: null })}>
          Enter another code
        </button>
      }
    >
      It may have ended, or the gateway lets no clients sign in. Begin again with /login in the client.
    </Empty>
  );
  return (
    <Loaded resource={found} missing={missing} part>
      {(signIn) => (signIn.state === "pending" ? <Decision of={signIn} /> : <Decided of={signIn} />)}
    </Loaded>
  );
}

function Decision({ of: { user_code: code, address, created_at_ms: began, ends_at_ms: ends, key_days: days } }: { of: DeviceSignIn }) {
  const known = useFirst(usable);
  const [chosen, setProject] = useState("");
  const approval = useSubmission();
  const denial = useSubmission();
  const [only, ...others] = known?.found ?? [];
  const project = chosen || (only && others.length === 0 && !known?.more ? only.value : "");
  const decide = async (way: "approve" | "deny", body: Record<string, string>): Promise<void> => {
    await call("POST", `${at("device-sign-ins", code)}/${way}`, { body });
    changed("device-sign-ins", "keys");
  };
  const approve = (): void => void approval.run({ project }, () => decide("approve", { project }));
  return (
    <Card title="Approve this sign-in?">
      <p>Approve it only if you began it yourself, and the client shows the same code.</p>
      <Facts
        rows={[
          [
            "Code",
            <strong key="c" class="mono">
              {code}
            </strong>,
          ],
          ["Began", moment(began)],
          ["From", address ?? UNKNOWN],
          ["Ends", moment(ends)],
        ]}
      />
      <Form submission={approval} onSubmit={approve}>
        <Field
          label="Project"
          name="project"
          help={`The client gets a key of this project for ${plural(days, "day")}.${may("administer") && !self() ? " It acts as no human, because you signed in with a key." : ""}`}
        >
          <Chooser label="Project" value={project} onValue={setProject} of={usable} placeholder="Choose a project" />
        </Field>
        <FormFooterError />
        <FormButtons busy={approval.busy} submit="Approve" submitting="Approving…" lacks={!project && "Choose a project first."} />
      </Form>
      <FormError error={denial.error} />
      <button type="button" class="btn" disabled={denial.busy} onClick={() => void denial.run("deny", () => decide("deny", {}))}>
        Deny
      </button>
    </Card>
  );
}

function Decided({ of: { state } }: { of: DeviceSignIn }) {
  return state === "approved" ? (
    <Card title="Approved">
      <p role="status">
        The client signs in within a few seconds. You can close this page. Its key is in the list of API keys, where you can revoke it.
      </p>
    </Card>
  ) : (
    <Card title="Denied">
      <p role="status">The client gets no key. You can close this page.</p>
    </Card>
  );
}
