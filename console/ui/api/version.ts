// The version of the gateway: a page that was loaded from another one should be loaded again.
import { computed, signal } from "@preact/signals";

const first = signal<string | null>(null);
const current = signal<string | null>(null);

/** Takes the version that the gateway names. The first one is that of this page. */
export function seeVersion(version: string): void {
  first.value ??= version;
  current.value = version;
}

/** The version of the gateway if this page is of another one, else null. */
export const newVersion = computed(() => (current.value === first.value ? null : current.value));
