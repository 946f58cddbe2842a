// Step 1: a human, a project, and the role of the one in the other.
import { useRef, useState } from "preact/hooks";
import { at, call, Fault } from "../../api/client";
import { enabledHumans, enabledProjects, type Source, useFirst } from "../../api/objects";
import { changed } from "../../api/resource";
import type { Principal, Project, Role } from "../../api/types";
import { Chooser } from "../../part/chooser";
import { Field, Form, FormButtons, FormFooterError, Select, Text, useSubmission } from "../../part/form";

type Props = { onDone: (said: string) => void };

/** Runs `action`; its fault names the parameter below `part`, because two objects of the form have a name. */
async function within<T>(part: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (!(error instanceof Fault) || error.param === null) throw error;
    throw new Fault(error.status, error.code, error.message, `${part}.${error.param}`, error.requestId);
  }
}

const NEW = "new";

export function AccessStep({ onDone }: Props) {
  const [human, setHuman] = useState(NEW);
  const [name, setName] = useState("");
  const [email, setEmail] = useState("");
  const [project, setProject] = useState(NEW);
  const [title, setTitle] = useState("");
  const [role, setRole] = useState<Role>("owner");
  // What an attempt that failed half-way has made is not made twice.
  const made = useRef<{ human?: Principal; project?: Project }>({});
  const submission = useSubmission();
  const makeHuman = async (): Promise<Principal> => {
    if (human !== NEW) return (await call<Principal>("GET", at("principals", human))).data;
    const body = { name, ...(email.trim() ? { email: email.trim() } : {}) };
    made.current.human ??= (await within("human", () => call<Principal>("POST", "principals", { body }))).data;
    return made.current.human;
  };
  const makeProject = async (): Promise<Project> => {
    if (project !== NEW) return (await call<Project>("GET", at("projects", project))).data;
    made.current.project ??= (await within("project", () => call<Project>("POST", "projects", { body: { name: title } }))).data;
    return made.current.project;
  };
  const create = (): void =>
    void submission.run({ human, name, email, project, title, role }, async () => {
      const principal = await makeHuman();
      const of = await makeProject();
      const path = `projects/${encodeURIComponent(of.id)}/members/${encodeURIComponent(principal.id)}`;
      await within("role", () => call("PUT", path, { body: { role } }));
      made.current = {};
      changed("principals", "projects");
      onDone(`${principal.name} is ${role} of ${of.name}.`);
    });
  return (
    <Form submission={submission} onSubmit={create} label="Access">
      <fieldset class="group">
        <legend>Human principal</legend>
        <Existing label="Human" value={human} onValue={setHuman} of={enabledHumans} />
        {human === NEW && (
          <div class="form-row">
            <Field label="Name" name="human.name">
              <Text value={name} onValue={setName} placeholder="Ada" />
            </Field>
            <Field label="E-mail" name="human.email" optional>
              <Text type="email" value={email} onValue={setEmail} />
            </Field>
          </div>
        )}
      </fieldset>
      <fieldset class="group">
        <legend>Project</legend>
        <Existing label="Which project" value={project} onValue={setProject} of={enabledProjects} />
        {project === NEW && (
          <Field label="Name" name="project.name">
            <Text value={title} onValue={setTitle} placeholder="agents" />
          </Field>
        )}
      </fieldset>
      <Field label="Role" name="role" help="An owner and an admin may change the project's keys and members.">
        <Select
          value={role}
          onValue={(value) => setRole(value as Role)}
          options={[
            ["owner", "owner"],
            ["admin", "admin"],
          ]}
        />
      </Field>
      <FormFooterError />
      <FormButtons busy={submission.busy} submit="Create" submitting="Creating…" />
    </Form>
  );
}

type ExistingProps = { label: string; value: string; onValue: (id: string) => void; of: Source };

/** Chooses one that exists already. It is absent while there is none. */
function Existing({ label, value, onValue, of }: ExistingProps) {
  const first = useFirst(of);
  if (!first?.found.length) return null;
  return (
    <Field label={label} name={label}>
      <Chooser label={label} value={value} onValue={onValue} of={of} fixed={[[NEW, "A new one"]]} />
    </Field>
  );
}
