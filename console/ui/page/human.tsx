// One human: the projects they belong to, and the keys that act as them.
import { useState } from "preact/hooks";
import { call, may } from "../api/client";
import { useList } from "../api/list";
import { useAll } from "../api/objects";
import { changed, useResource } from "../api/resource";
import type { ListedProject, Principal, Quota, Usage } from "../api/types";
import { go, href, param, setParams } from "../app/router";
import { Copyable } from "../part/copy";
import { Confirm } from "../part/dialog";
import { EditDialog } from "../part/edit";
import { WriteOutlook } from "../part/effects";
import { Empty, Loaded } from "../part/feedback";
import { Field, Text } from "../part/form";
import { day, UNKNOWN } from "../part/format";
import { Limits, newLimit } from "../part/limits_card";
import { Card, Facts, Page } from "../part/page";
import { Table } from "../part/table";
import { EnabledMark } from "./access";
import { AccessActions } from "./access_actions";
import { KeyTable } from "./keys";
import { usePeriod } from "./requests";

export function NameField({ value, onValue }: { value: string; onValue: (name: string) => void }) {
  return (
    <Field label="Name" name="name">
      <Text value={value} onValue={onValue} autoFocus />
    </Field>
  );
}

export function HumanPage({ id }: { id: string }) {
  const human = useResource<Principal>(`principals/${encodeURIComponent(id)}`);
  return (
    <Loaded
      resource={human}
      missing={
        <Empty
          page
          icon="user"
          title="There is no such human"
          action={
            <a class="btn" href={href("/access", { tab: "humans" })}>
              All humans
            </a>
          }
        >
          <span class="mono wrap">{id}</span> was deleted, or never existed.
        </Empty>
      }
    >
      {(data) => <One of={data} etag={human.etag} />}
    </Loaded>
  );
}

function One({ of, etag }: { of: Principal; etag: string | null }) {
  const [doing, setDoing] = useState<"disable" | "delete" | null>(null);
  const { rows: quotas, isWhole } = useAll<Quota>("quotas", { principal: of.id });
  const yesterday = usePeriod("24h");
  const lately = useResource<Usage>(doing === "delete" ? `usage?${new URLSearchParams({ principal: of.id, from: yesterday })}` : null);
  const patch = async (disabled: boolean): Promise<void> => {
    await call("PATCH", `principals/${of.id}`, { body: { disabled }, ifMatch: etag });
    changed("principals");
  };
  return (
    <Page
      title={of.name}
      lead={of.email ?? "A human"}
      actions={
        <AccessActions
          page={`/access/humans/${encodeURIComponent(of.id)}`}
          of={of}
          onEnable={() => patch(false)}
          onDisable={() => setDoing("disable")}
          onDelete={() => setDoing("delete")}
        />
      }
    >
      <div class="cols main-side">
        <div class="page-stack">
          <Projects of={of} />
          <Keys of={of} />
          <Limits
            quotas={isWhole ? quotas : undefined}
            none="No limit of all keys that act as this human together."
            add={newLimit("principal", of.id)}
          />
        </div>
        <Card bare>
          <Facts
            rows={[
              ["State", <EnabledMark key="s" disabled={of.disabled} />],
              ["E-mail", of.email ?? UNKNOWN],
              ["Id", <Copyable key="i" text={of.id} label="the id" clip />],
              ["Since", day(of.created_at_ms)],
            ]}
          />
        </Card>
      </div>
      {param("edit") && (
        <EditDialog
          title={`Edit ${of.name}`}
          path={`principals/${of.id}`}
          of={of}
          etag={etag}
          fieldsOf={({ name, email }) => ({ name, email })}
          labels={{ name: "Name", email: "E-mail" }}
          onSaved={() => changed("principals")}
          onClose={() => setParams({ edit: null })}
        >
          {(mine, set) => (
            <>
              <NameField value={mine.name} onValue={(name) => set({ name })} />
              <Field label="E-mail" name="email" optional>
                <Text type="email" value={mine.email ?? ""} onValue={(email) => set({ email: email || null })} />
              </Field>
            </>
          )}
        </EditDialog>
      )}
      {doing === "disable" && (
        <Confirm title={`Disable ${of.name}?`} action="Disable" danger={false} run={() => patch(true)} onClose={() => setDoing(null)}>
          <p>
            Keys that act as this human are rejected from the next request on. Answers that have started continue. It can be enabled again.
          </p>
          <WriteOutlook write={{ method: "PATCH", path: `principals/${of.id}`, body: { disabled: true }, ifMatch: etag }} />
        </Confirm>
      )}
      {doing === "delete" && (
        <Confirm
          title={`Delete ${of.name}?`}
          action="Delete"
          typed={lately.data.value?.totals?.requests ? of.name : undefined}
          run={async () => {
            await call("DELETE", `principals/${of.id}`, { ifMatch: etag });
            go(href("/access", { tab: "humans" }));
            changed("principals");
          }}
          onClose={() => setDoing(null)}
        >
          <p>Limits of this human go with them. Usage records stay.</p>
          <WriteOutlook write={{ method: "DELETE", path: `principals/${of.id}`, ifMatch: etag }} />
        </Confirm>
      )}
    </Page>
  );
}

function Projects({ of }: { of: Principal }) {
  const projects = useList<ListedProject>("projects", { principal: of.id });
  return (
    <Card title="Projects" bare>
      <Table
        list={projects}
        label="Projects"
        rowKey={(project) => project.id}
        empty={
          <Empty
            icon="folder"
            title="In no project"
            action={
              <a class="btn" href={href("/access")}>
                All projects
              </a>
            }
          >
            Add members on the page of a project.
          </Empty>
        }
        columns={[
          {
            head: "Name",
            width: "1fr",
            cell: (project) => (
              <a class="row-link" href={href(`/access/projects/${project.id}`)}>
                {project.name}
              </a>
            ),
          },
          { head: "Role", width: 104, cell: ({ role }) => role },
          { head: "State", width: 112, cell: ({ disabled }) => <EnabledMark disabled={disabled} /> },
        ]}
      />
    </Card>
  );
}

function Keys({ of }: { of: Principal }) {
  return (
    <Card title="Keys that act as them" bare>
      <KeyTable
        filter={{ acts_as: of.id }}
        empty={
          <Empty
            icon="key-round"
            title="No key acts as them"
            action={
              may("mint_keys") && (
                <a class="btn" href={href("/keys", { new: "1" })}>
                  Mint key
                </a>
              )
            }
          >
            A key that acts as a human may use that human's private connections.
          </Empty>
        }
      />
    </Card>
  );
}
