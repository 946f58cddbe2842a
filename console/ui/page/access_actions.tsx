// The actions of a human's and a project's page.
import { may } from "../api/client";
import { href, setParams } from "../app/router";
import { notify } from "../part/feedback";
import { Icon } from "../part/icon";
import { Menu } from "../part/menu";

interface AccessActionsProps {
  /** The address of the page below /console. */
  page: string;
  of: { name: string; disabled: boolean };
  onEnable(): Promise<void>;
  onDisable(): void;
  onDelete(): void;
}

export function AccessActions({ page, of, onEnable, onDisable, onDelete }: AccessActionsProps) {
  return (
    <>
      <a class="btn" href={href(`${page}/access`)}>
        {page.includes("/humans/") ? "What can they call?" : "What can it call?"}
      </a>
      {may("administer") && (
        <>
          <button type="button" class="btn" onClick={() => setParams({ edit: "1" })}>
            <Icon name="pencil" small />
            Edit
          </button>
          <Menu
            label={`Actions for ${of.name}`}
            items={[
              of.disabled
                ? { label: "Enable", icon: "play", run: () => void onEnable().catch((error: Error) => notify(error.message)) }
                : { label: "Disable", icon: "power", run: onDisable },
              { label: "Delete", icon: "trash-2", danger: true, run: onDelete },
            ]}
          />
        </>
      )}
    </>
  );
}
