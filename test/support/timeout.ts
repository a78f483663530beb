import { setDefaultTimeout } from 'bun:test'

/**
 * For tests that start real threads, processes and databases: the default of five seconds is for tests of functions.
 * The runner forgets the setting after each file, so what such tests import sets it anew.
 */
setDefaultTimeout(60_000)
