// Humans and projects: who uses the gateway, and for what.
import { useState } from "preact/hooks";
import { call, may } from "../api/client";
import { useList } from "../api/list";
import { changed } from "../api/resource";
import type { ListedProject, Principal, Project } from "../api/types";
import { go, href, param, setParams } from "../app/router";
import { Dialog } from "../part/dialog";
import { Field, Form, FormButtons, FormFooterError, Text, useSubmission } from "../part/form";
import { count, day, plural, UNKNOWN } from "../part/format";
import { State } from "../part/icon";
import { HeadNewButton, ListCard, NewButton } from "../part/list";
import { asked as askedFor, orderOf } from "../part/order";
import { Page, Tabs } from "../part/page";
import { Search } from "../part/search";
import { NotBySpend, Spend } from "./keys";

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
      actions={may("administer") && <HeadNewButton>New {what}</HeadNewButton>}
    >
      <Tabs
        label="Access"
        tabs={[
          ["projects", "Projects"],
          ["humans", "Humans"],
        ]}
      />
      <div class="filters">
        <Search key={tab} label={`Search ${tab}`} placeholder={tab === "humans" ? "Name or e-mail" : "Name"} />
      </div>
      {tab === "humans" ? <Humans /> : <Projects />}
      {param("new") && (tab === "humans" ? <NewHuman /> : <NewProject />)}
    </Page>
  );
}

const close = (): void => setParams({ new: null });

const BY_NAME = { sort: "name", order: "asc" } as const;

/** The allowlists of a project in short. */
function mayUse({ endpoints, models }: Pick<Project, "endpoints" | "models">): string {
  const parts = [endpoints && plural(endpoints.length, "endpoint"), models && plural(models.length, "model")];
  return parts.filter(Boolean).join(", ") || "everything";
}

function Projects() {
  const q = param("q");
  const order = orderOf(["name", "created", "members", "keys", "spend"], BY_NAME);
  const list = useList<ListedProject>("projects", { q, ...askedFor(order) });
  return (
    <ListCard
      note={<NotBySpend list={list} />}
      list={list}
      order={order}
      usual={BY_NAME}
      label="Projects"
      rowKey={(project) => project.id}
      isFiltered={q !== ""}
      icon="folder"
      titles={["No project fits the search", "There is no project yet"]}
      help={
        may("administer")
          ? "Keys belong to a project, which bounds what they may use and spend."
          : "Ask an administrator to add you to a project."
      }
      action={may("administer") && <NewButton>New project</NewButton>}
      columns={[
        {
          head: "Name",
          width: "1fr",
          sort: "name",
          cell: (project) => (
            <a class="row-link" href={href(`/access/projects/${project.id}`)}>
              {project.name}
            </a>
          ),
        },
        { head: "State", width: 112, fold: 3, cell: ({ disabled }) => <EnabledMark disabled={disabled} /> },
        { head: "Members", width: 104, number: true, sort: "members", fold: 4, cell: ({ members }) => count(members) },
        { head: "Keys", width: 88, number: true, sort: "keys", fold: 5, cell: ({ keys }) => count(keys) },
        { head: "Spend this month", width: 168, number: true, sort: "spend", cell: ({ month }) => <Spend figures={month} /> },
        { head: "May use", width: 184, fold: 1, cell: (project) => <span class="muted">{mayUse(project)}</span> },
        { head: "Since", width: 128, sort: "created", from: "desc", fold: 2, cell: ({ created_at_ms }) => day(created_at_ms) },
      ]}
    />
  );
}

function Humans() {
  const q = param("q");
  const order = orderOf(["name", "email", "created"], BY_NAME);
  const list = useList<Principal>("principals", { q, ...askedFor(order) });
  return (
    <ListCard
      list={list}
      order={order}
      usual={BY_NAME}
      label="Humans"
      rowKey={(human) => human.id}
      isFiltered={q !== ""}
      icon="user"
      titles={["No human fits the search", "There is no human yet"]}
      help="A human owns projects and private connections; keys may act as one."
      action={may("administer") && <NewButton>New human</NewButton>}
      columns={[
        {
          head: "Name",
          width: "1fr",
          sort: "name",
          cell: (human) => (
            <a class="row-link" href={href(`/access/humans/${human.id}`)}>
              {human.name}
            </a>
          ),
        },
        { head: "E-mail", width: "1fr", least: 200, sort: "email", fold: 3, cell: ({ email }) => email ?? UNKNOWN },
        { head: "State", width: 112, fold: 2, cell: ({ disabled }) => <EnabledMark disabled={disabled} /> },
        { head: "Since", width: 128, sort: "created", from: "desc", fold: 1, cell: ({ created_at_ms }) => day(created_at_ms) },
      ]}
    />
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
