import { setDefaultTimeout } from 'bun:test'

// Tests start real threads, processes and databases; the default of five seconds is for tests of functions.
setDefaultTimeout(60_000)
