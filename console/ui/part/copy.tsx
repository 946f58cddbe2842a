// Copying text to the clipboard, also where the page was not served securely and the browser has no clipboard for it.
import { useState } from "preact/hooks";
import { Icon } from "./icon";

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "sr";
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function useCopied(): [boolean | null, (text: string) => void] {
  const [copied, set] = useState<boolean | null>(null);
  const copy = (text: string): void => {
    void copyText(text).then((done) => {
      set(done);
      setTimeout(() => set(null), 2000);
    });
  };
  return [copied, copy];
}

/** A text with a button that copies it. */
export function Copyable({ text, label, clip }: { text: string; label: string; clip?: boolean }) {
  const [copied, copy] = useCopied();
  return (
    <span class="copy">
      <span class={clip ? "mono clip" : "mono wrap"}>{text}</span>
      <button type="button" aria-label={`Copy ${label}`} onClick={() => copy(text)}>
        <Icon name={copied ? "check" : "copy"} small />
      </button>
      <span class="sr" role="status">
        {copied === null ? "" : copied ? "Copied" : "It could not be copied"}
      </span>
    </span>
  );
}

export function CopyButton({ text, label = "Copy", primary }: { text: string; label?: string; primary?: boolean }) {
  const [copied, copy] = useCopied();
  const said = copied === null ? "" : copied ? "Copied" : "Select and copy it by hand";
  return (
    <>
      <button type="button" class={primary ? "btn primary" : "btn"} onClick={() => copy(text)}>
        <Icon name={copied ? "check" : "copy"} small />
        {said || label}
      </button>
      {/* A status inside the button would take its name from it. */}
      <span class="sr" role="status">
        {said && `${said}.`}
      </span>
    </>
  );
}
