// Humans and projects: who uses the gateway, and for what.
import { useState } from "preact/hooks";
import { call, may } from "../api/client";
import { useList } from "../api/list";
import { changed, useResource } from "../api/resource";
import type { ListedProject, Principal, Project, Usage } from "../api/types";
import { go, href, param, setParams } from "../app/router";
import { Dialog } from "../part/dialog";
import { Empty } from "../part/feedback";
import { Field, Form, FormButtons, FormFooterError, Text, useSubmission } from "../part/form";
import { count, day, UNKNOWN } from "../part/format";
import { Icon, State } from "../part/icon";
import { Card, Page, Tabs } from "../part/page";
import { Table } from "../part/table";
import { monthStart, Spend } from "./keys";

export function EnabledMark({ disabled }: { disabled: boolean }) {
  return <State kind={disabled ? "off" : "ok"} word={disabled ? "disabled" : "enabled"} />;
}

export function AccessPage() {
  const tab = param("tab") === "humans" ? "humans" : "projects";
  const what = tab === "humans" ? "human" : "project";
  return (
    <Page
      title="Access"
      lead="A project is the unit of quota. Humans are its members, and keys may act as them."
      actions={
        may("administer") && (
          <button type="button" class="btn primary" data-new onClick={() => setParams({ new: "1" })}>
            <Icon name="plus" small />
            New {what}
          </button>
        )
      }
    >
      <Tabs
        label="Access"
        tabs={[
          ["projects", "Projects"],
          ["humans", "Humans"],
        ]}
      />
      {tab === "humans" ? <Humans /> : <Projects />}
      {param("new") && (tab === "humans" ? <NewHuman /> : <NewProject />)}
    </Page>
  );
}

const open = (): void => setParams({ new: "1" });
const close = (): void => setParams({ new: null });

function Projects() {
  const list = useList<ListedProject>("projects");
  const usage = useResource<Usage>(may("see_usage") ? `usage?group_by=project&from=${monthStart()}&limit=500` : null).data.value?.data;
  return (
    <Card bare>
      <Table
        list={list}
        label="Projects"
        rowKey={(project) => project.id}
        least={720}
        empty={
          <Empty
            icon="folder"
            title="There is no project yet"
            action={
              may("administer") && (
                <button type="button" class="btn primary" onClick={open}>
                  New project
                </button>
              )
            }
          >
            {may("administer")
              ? "Keys belong to a project, which bounds what they may use and spend."
              : "Ask an administrator to add you to a project."}
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
          { head: "State", width: 112, cell: ({ disabled }) => <EnabledMark disabled={disabled} /> },
          { head: "Members", width: 96, number: true, cell: ({ members }) => count(members) },
          { head: "Keys", width: 80, number: true, cell: ({ keys }) => count(keys) },
          {
            head: "Spend this month",
            width: 168,
            number: true,
            cell: ({ id }) => <Spend figures={usage?.find(({ group }) => group.project === id)} />,
          },
          { head: "Since", width: 128, cell: ({ created_at_ms }) => day(created_at_ms) },
        ]}
      />
    </Card>
  );
}

function Humans() {
  const list = useList<Principal>("principals");
  return (
    <Card bare>
      <Table
        list={list}
        label="Humans"
        rowKey={(human) => human.id}
        least={640}
        empty={
          <Empty
            icon="user"
            title="There is no human yet"
            action={
              may("administer") && (
                <button type="button" class="btn primary" onClick={open}>
                  New human
                </button>
              )
            }
          >
            A human owns projects and private connections; keys may act as one.
          </Empty>
        }
        columns={[
          {
            head: "Name",
            width: "1fr",
            cell: (human) => (
              <a class="row-link" href={href(`/access/humans/${human.id}`)}>
                {human.name}
              </a>
            ),
          },
          { head: "E-mail", width: "1fr", cell: ({ email }) => email ?? UNKNOWN },
          { head: "State", width: 112, cell: ({ disabled }) => <EnabledMark disabled={disabled} /> },
          { head: "Since", width: 128, cell: ({ created_at_ms }) => day(created_at_ms) },
        ]}
      />
    </Card>
  );
}

function NewProject() {
  const [name, setName] = useState("");
  const submission = useSubmission();
  const create = (): void =>
    void submission.run({ name }, async (repeatKey) => {
      const { data } = await call<Project>("POST", "projects", { body: { name }, repeatKey });
      changed("projects");
      go(href(`/access/projects/${data.id}`));
    });
  return (
    <Dialog title="New project" onClose={close}>
      <Form submission={submission} onSubmit={create}>
        <Field label="Name" name="name">
          <Text value={name} onValue={setName} autoFocus />
        </Field>
        <Foot busy={submission.busy} />
      </Form>
    </Dialog>
  );
}

function NewHuman() {
  const [name, setName] = useState("");
  const [email, setEmail] = useState("");
  const submission = useSubmission();
  const create = (): void => {
    const body = { name, ...(email.trim() ? { email: email.trim() } : {}) };
    void submission.run(body, async (repeatKey) => {
      const { data } = await call<Principal>("POST", "principals", { body, repeatKey });
      changed("principals");
      go(href(`/access/humans/${data.id}`));
    });
  };
  return (
    <Dialog title="New human" onClose={close}>
      <Form submission={submission} onSubmit={create}>
        <Field label="Name" name="name">
          <Text value={name} onValue={setName} autoFocus />
        </Field>
        <Field label="E-mail" name="email" optional>
          <Text type="email" value={email} onValue={setEmail} />
        </Field>
        <Foot busy={submission.busy} />
      </Form>
    </Dialog>
  );
}

function Foot({ busy }: { busy: boolean }) {
  return (
    <>
      <FormFooterError />
      <FormButtons busy={busy} submit="Create" submitting="Creating…" onCancel={close} />
    </>
  );
}
