// One project: its members, what its keys may use, its limits and its keys.
import { useState } from "preact/hooks";
import { call, may, mayIn, self } from "../api/client";
import { useList } from "../api/list";
import { humans, useAll } from "../api/objects";
import { changed, useResource } from "../api/resource";
import type { KeyLimit, Member, Project, Quota, Role, Usage } from "../api/types";
import { go, href, param, setParams } from "../app/router";
import { Chooser } from "../part/chooser";
import { Copyable } from "../part/copy";
import { Confirm, Dialog } from "../part/dialog";
import { EditDialog } from "../part/edit";
import { WriteOutlook } from "../part/effects";
import { Empty, Loaded, notify } from "../part/feedback";
import { Field, Form, FormButtons, FormFooterError, Select, Text, useSubmission } from "../part/form";
import { day, plural, UNKNOWN } from "../part/format";
import { amount, limitName } from "../part/limits";
import { Limits, newLimit } from "../part/limits_card";
import { Ref } from "../part/links";
import { Card, Facts, Page, Tabs } from "../part/page";
import { Table } from "../part/table";
import { EnabledMark } from "./access";
import { AccessActions } from "./access_actions";
import { NameField } from "./human";
import { Allowlists } from "./key";
import { KeyTable, monthStart, Spend } from "./keys";

const ROLES: [Role, string][] = [
  ["owner", "owner"],
  ["admin", "admin"],
  ["member", "member"],
  ["viewer", "viewer"],
];

export function ProjectPage({ id }: { id: string }) {
  const project = useResource<Project>(`projects/${encodeURIComponent(id)}`);
  return (
    <Loaded
      resource={project}
      missing={
        <Empty
          page
          icon="folder"
          title="There is no such project"
          action={
            <a class="btn" href={href("/access")}>
              All projects
            </a>
          }
        >
          <span class="mono wrap">{id}</span> was deleted, or never existed.
        </Empty>
      }
    >
      {(data) => <One of={data} etag={project.etag} />}
    </Loaded>
  );
}

const list = (entries: string[] | null): string => (entries === null ? "all" : entries.length ? entries.join(", ") : "none");
const defaults = (limits: KeyLimit[]): string =>
  limits.map((limit) => `${limitName(limit)}: ${amount(limit.metric, limit.limit)}`).join("; ") || "none";

function One({ of, etag }: { of: Project; etag: string | null }) {
  const [doing, setDoing] = useState<"disable" | "delete" | null>(null);
  const tab = param("tab");
  const totals = useResource<Usage>(`usage?project=${encodeURIComponent(of.id)}&from=${monthStart()}`).data.value?.totals;
  const patch = async (disabled: boolean): Promise<void> => {
    await call("PATCH", `projects/${of.id}`, { body: { disabled }, ifMatch: etag });
    changed("projects");
  };
  return (
    <Page
      title={of.name}
      lead="A project"
      actions={
        <AccessActions
          page={`/access/projects/${encodeURIComponent(of.id)}`}
          of={of}
          onEnable={() => patch(false)}
          onDisable={() => setDoing("disable")}
          onDelete={() => setDoing("delete")}
        />
      }
    >
      <div class="cols main-side">
        <div class="page-stack">
          <Tabs
            label={of.name}
            tabs={[
              ["members", "Members"],
              ["keys", "Keys"],
              ["limits", "Limits"],
            ]}
          />
          {tab === "keys" ? <Keys of={of} /> : tab === "limits" ? <ProjectLimits of={of} /> : <Members of={of} />}
        </div>
        <Card bare>
          <Facts
            rows={[
              ["State", <EnabledMark key="s" disabled={of.disabled} />],
              ["Spend", totals ? <Spend key="m" figures={totals} /> : UNKNOWN],
              ["Requests", totals ? `${plural(totals.requests, "request")} this month` : UNKNOWN],
            ]}
          />
          <Facts
            rows={[
              ["Endpoints", list(of.endpoints)],
              ["Models", list(of.models)],
              ["Operations", list(of.routes)],
              ["Limits of new keys", defaults(of.key_defaults)],
            ]}
          />
          <Facts
            rows={[
              ["Id", <Copyable key="i" text={of.id} label="the id" clip />],
              ["Since", day(of.created_at_ms)],
            ]}
          />
        </Card>
      </div>
      {param("edit") && (
        <EditDialog
          title={`Edit ${of.name}`}
          path={`projects/${of.id}`}
          of={of}
          etag={etag}
          fieldsOf={({ name, endpoints, models, routes }) => ({ name, endpoints, models, routes })}
          labels={{ name: "Name", endpoints: "Endpoints", models: "Models", routes: "Operations" }}
          onSaved={() => changed("projects")}
          onClose={() => setParams({ edit: null })}
        >
          {(mine, set, error) => (
            <>
              <NameField value={mine.name} onValue={(name) => set({ name })} />
              <Allowlists project={of.id} value={mine} onValue={set} error={error} />
            </>
          )}
        </EditDialog>
      )}
      {doing === "disable" && (
        <Confirm title={`Disable ${of.name}?`} action="Disable" danger={false} run={() => patch(true)} onClose={() => setDoing(null)}>
          <p>Its keys are rejected from the next request on. Answers that have started continue. It can be enabled again.</p>
          <WriteOutlook write={{ method: "PATCH", path: `projects/${of.id}`, body: { disabled: true }, ifMatch: etag }} />
        </Confirm>
      )}
      {doing === "delete" && (
        <Confirm
          title={`Delete ${of.name}?`}
          action="Delete"
          typed={totals?.requests ? of.name : undefined}
          run={async () => {
            await call("DELETE", `projects/${of.id}`, { ifMatch: etag });
            go(href("/access"));
            changed("projects");
          }}
          onClose={() => setDoing(null)}
        >
          <p>Its members and limits go with it. Usage records stay.</p>
          <WriteOutlook write={{ method: "DELETE", path: `projects/${of.id}`, ifMatch: etag }} />
        </Confirm>
      )}
    </Page>
  );
}

function ProjectLimits({ of }: { of: Project }) {
  const { rows, isWhole } = useAll<Quota>("quotas", { project: of.id });
  return <Limits quotas={isWhole ? rows : undefined} none="No limit of the project as a whole." add={newLimit("project", of.id)} />;
}

function Members({ of }: { of: Project }) {
  const members = useList<Member>(`projects/${of.id}/members`);
  const mayChange = mayIn(of.id, "change_members", null);
  const mayOwn = mayIn(of.id, "change_owners", null);
  const isFixed = ({ role }: Member): boolean => !mayChange || (role === "owner" && !mayOwn);
  const roles = ROLES.filter(([role]) => role !== "owner" || mayOwn);
  const [leaving, setLeaving] = useState<Member | null>(null);
  const nameOf = ({ principal, principal_name: name }: Member): string => name ?? principal;
  const path = (id: string): string => `projects/${of.id}/members/${encodeURIComponent(id)}`;
  const setRole = (member: Member, role: string): void =>
    void call("PUT", path(member.principal), { body: { role } })
      .then(() => notify(`${nameOf(member)} is ${role} of ${of.name}.`))
      .catch((error: Error) => notify(error.message))
      .then(() => members.load());
  return (
    <Card
      title="Members"
      bare
      aside={
        mayChange && (
          <button type="button" class="btn small" onClick={() => setParams({ member: "new" })}>
            Add member
          </button>
        )
      }
    >
      <Table
        list={members}
        label="Members"
        rowKey={(member) => member.principal}
        empty={
          <Empty icon="users" title="It has no members">
            Keys that act as nobody need none.
          </Empty>
        }
        columns={[
          { head: "Human", width: "1fr", cell: (member) => <Ref kind="human" id={member.principal} name={nameOf(member)} /> },
          {
            head: "Role",
            width: 136,
            cell: (member) =>
              isFixed(member) ? (
                member.role
              ) : (
                <span class="btn-cell">
                  <Select
                    aria-label={`Role of ${nameOf(member)}`}
                    value={member.role}
                    onValue={(role) => setRole(member, role)}
                    options={roles}
                  />
                </span>
              ),
          },
          { head: "Since", width: 120, fold: 1, cell: ({ created_at_ms }) => day(created_at_ms) },
          {
            head: "Actions",
            width: 92,
            quiet: true,
            cell: (member) => (
              <button
                type="button"
                class="btn plain small"
                disabled={isFixed(member)}
                onClick={() => setLeaving(member)}
                aria-label={`Remove ${nameOf(member)}`}
              >
                Remove
              </button>
            ),
          },
        ]}
      />
      {param("member") && mayChange && <AddMember of={of} roles={roles} onDone={() => members.load()} />}
      {leaving && (
        <Confirm
          title={`Remove ${nameOf(leaving)}?`}
          action="Remove"
          run={async () => {
            await call("DELETE", path(leaving.principal));
            void members.load();
          }}
          onClose={() => setLeaving(null)}
        >
          <p>
            {nameOf(leaving)} leaves {of.name}. The human stays.
          </p>
        </Confirm>
      )}
    </Card>
  );
}

type AddProps = { of: Project; roles: [Role, string][]; onDone: () => void };

function AddMember({ of, roles, onDone }: AddProps) {
  const [human, setHuman] = useState("");
  const [role, setRole] = useState<string>("member");
  const submission = useSubmission();
  const close = (): void => setParams({ member: null });
  const add = (): void =>
    void submission.run({ human, role }, async () => {
      const added = await call<Member>("PUT", `projects/${of.id}/members/${encodeURIComponent(human.trim() || "none")}`, {
        body: { role },
      });
      notify(`${added.data.principal_name ?? human} is ${role} of ${of.name}.`);
      onDone();
      close();
    });
  return (
    <Dialog title={`Add a member to ${of.name}`} onClose={close}>
      <Form submission={submission} onSubmit={add}>
        {may("administer") ? (
          <Field label="Human" name="principal">
            <Chooser label="Human" value={human} onValue={setHuman} of={humans} placeholder="Choose a human" autoFocus />
          </Field>
        ) : (
          <Field label="ID of the human" name="principal" help="It is on their own page under Access, Humans.">
            <Text value={human} onValue={setHuman} placeholder="prn_…" autoFocus />
          </Field>
        )}
        <Field label="Role" name="role">
          <Select value={role} onValue={setRole} options={roles} />
        </Field>
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Add" onCancel={close} lacks={!human && "Choose a human first."} />
      </Form>
    </Dialog>
  );
}

function Keys({ of }: { of: Project }) {
  const mayMint = mayIn(of.id, "mint_keys", self()) || mayIn(of.id, "mint_keys", null);
  return (
    <Card
      title="Keys"
      bare
      aside={
        mayMint && (
          <a class="btn small" href={href("/keys", { project: of.id, new: "1" })}>
            Mint key
          </a>
        )
      }
    >
      <KeyTable
        filter={{ project: of.id }}
        empty={
          <Empty
            icon="key-round"
            title="It has no keys"
            action={
              mayMint && (
                <a class="btn" href={href("/keys", { project: of.id, new: "1" })}>
                  Mint key
                </a>
              )
            }
          >
            Clients send a key of the project, never the administrator key.
          </Empty>
        }
      />
    </Card>
  );
}
