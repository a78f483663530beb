import type { Bundle } from './bundle.ts'

/** The bundle inside the binary: `build.ts` puts it in place of this null, with which the server bundles the sources itself. */
export const BUNDLED: Bundle | null = null
